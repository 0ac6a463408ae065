//! `Charging`: a meter that charges while a stream runs.

use super::meter::Meter;
use super::permit::Denied;

/// A [`Meter`] that charges while the stream runs, in steps as large as the policy's estimate, and
/// says when the limit is used up. Made by [`Meter::charging`].
///
/// ```
/// use tower_throttle::{Denied, Meter};
///
/// /// Ends early when the client's budget is used up.
/// async fn produce(meter: &Meter, words: &[&str]) -> (String, Option<Denied>) {
///     let (charging, mut text) = (meter.charging(), String::new());
///     for word in words {
///         text += word;
///         if let Err(denied) = charging.add(1).await {
///             return (text, Some(denied));
///         }
///     }
///     (text, None)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Charging(Meter);

impl Meter {
    /// The same meter, charging while the stream runs instead of at its end alone: for streams that
    /// may use far more than any estimate.
    pub fn charging(&self) -> Charging {
        Charging(self.clone())
    }
}

impl Charging {
    /// Adds to the count, and charges for it if more was used than is charged. It waits for the store
    /// then; most calls stay within the last step. A step that is asked for is not lost if the future
    /// is dropped. It goes by the limit and the mode in force, while what the request was charged when
    /// it arrived stays.
    ///
    /// # Errors
    ///
    /// When a policy has nothing left. What was used is counted all the same, and settled when the
    /// body ends; a producer that ends its stream now exceeds the limit by this call at most. After
    /// the end of the body nothing is charged, and nothing denied.
    pub async fn add(&self, used: u64) -> Result<(), Denied> {
        self.0.add(used);
        for budget in self.0.budgets() {
            let covered = budget.cover(&self.0).await;
            covered.map_err(|used_up| Denied::by(used_up.verdict, used_up.worst))?;
        }
        Ok(())
    }
}
