//! `Meter`: what a request has used so far, counted by the code that produces its response.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::budget::Budget;
use crate::response::Metered;

/// Counts what a request uses while its response is produced: tokens, rows, bytes.
///
/// A layer puts one into the extensions of each request that a policy
/// [settles at its end](crate::Policy::settle_at_end). A handler takes it from there and gives a clone
/// to whatever produces the body; with the feature `axum`, a handler takes a `Meter` as a parameter.
/// Clones count together. A meter that nobody adds to leaves what was charged.
///
/// ```
/// use axum::body::Body;
/// use futures_util::{StreamExt, stream};
/// use tower_throttle::Meter;
///
/// async fn complete(meter: Meter) -> Body {
///     let words = stream::iter(["Hello", " ", "world"]);
///     Body::from_stream(words.map(move |word| {
///         meter.add(1);
///         Ok::<_, std::convert::Infallible>(word)
///     }))
/// }
/// ```
///
/// At the end of the body, what was counted is charged or given back, as far as it differs from the
/// estimate. To charge while the stream runs, and to end it when the limit is used up, see
/// [`charging`](Self::charging).
#[derive(Clone, Default)]
pub struct Meter {
    count: Arc<Count>,
    shared: Arc<Mutex<OfRequest>>,
}

/// What all meters of a request share.
#[derive(Default)]
struct OfRequest {
    named: Vec<(Box<str>, Arc<Count>)>,
    /// What each layer has charged for the request.
    budgets: Vec<Arc<Budget>>,
}

/// One more than the sum; zero as long as nobody has added anything.
#[derive(Default)]
struct Count(AtomicU64);

impl Meter {
    /// A meter that counts for nobody, for tests of what produces a body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds to the count. Adding 0 also counts as use: the request then costs nothing.
    pub fn add(&self, used: u64) {
        self.count.add(used);
    }

    /// What was added so far; `None` if nothing was.
    pub fn total(&self) -> Option<u64> {
        self.count.total()
    }

    /// The meter of this name for the same request, as a meter counts one unit: tokens in one, cents
    /// in another.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        let mut shared = self.shared();
        let mut known = shared.named.iter();
        let known = known.find(|(known, _)| **known == *name);
        let count = match known {
            Some((_, count)) => Arc::clone(count),
            None => {
                let count = Arc::default();
                shared.named.push((name.into(), Arc::clone(&count)));
                count
            }
        };
        Self {
            count,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Whether anybody has added anything, of any unit.
    pub(super) fn is_used(&self) -> bool {
        let shared = self.shared();
        let mut named = shared.named.iter();
        self.total().is_some() || named.any(|(_, count)| count.total().is_some())
    }

    /// What the layers that the request has passed have charged for it.
    pub(super) fn budgets(&self) -> Vec<Arc<Budget>> {
        self.shared().budgets.clone()
    }

    pub(super) fn add_budget(&self, budget: Arc<Budget>) {
        self.shared().budgets.push(budget);
    }

    fn shared(&self) -> MutexGuard<'_, OfRequest> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metered for Meter {
    fn total_of(&self, name: Option<&str>) -> Option<u64> {
        let Some(name) = name else {
            return self.total();
        };
        let shared = self.shared();
        let (_, count) = shared.named.iter().find(|(known, _)| **known == *name)?;
        count.total()
    }
}

impl Count {
    fn add(&self, used: u64) {
        // Saturating: what is beyond every limit needs no more digits.
        let sum = |before: u64| Some(before.max(1).saturating_add(used));
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, sum);
    }

    fn total(&self) -> Option<u64> {
        self.0.load(Ordering::Acquire).checked_sub(1)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("total", &self.total())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_count_together_and_names_apart() {
        let meter = Meter::new();
        assert_eq!(meter.total(), None);
        let (clone, cents) = (meter.clone(), meter.named("cents"));
        clone.add(2);
        meter.add(3);
        cents.named("cents").add(7);
        assert_eq!((meter.total(), cents.total()), (Some(5), Some(7)));
        assert_eq!(
            (meter.total_of(Some("cents")), meter.total_of(Some("rows"))),
            (Some(7), None)
        );
        clone.add(u64::MAX);
        assert_eq!(meter.total(), Some(u64::MAX - 1));
    }

    #[test]
    fn adding_nothing_is_use_all_the_same() {
        let meter = Meter::new();
        meter.add(0);
        assert_eq!(meter.total(), Some(0));
    }
}
