//! `Held`: permits that are given back when it is dropped.

use std::fmt;

use super::taken::Taken;
use crate::decision::Decision;

/// The answer to [`Limiter::hold`](crate::Limiter::hold), with the permits that it has taken, if
/// any.
///
/// Dropping it gives back permits that are held while something runs, so keep it in a variable for
/// as long; see [`Limiter::flush`](crate::Limiter::flush) for what to do before a process ends.
/// Permits that come back with time stay taken.
#[must_use = "dropping it gives the permits back"]
pub struct Held {
    pub(super) decision: Decision,
    pub(super) taken: Taken,
}

impl Held {
    pub(super) fn new(decision: Decision, taken: Taken) -> Self {
        Self { decision, taken }
    }

    /// Whether the permits were granted.
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether others may have the permits by now, because the [lease](crate::Limit::lease) was not
    /// renewed in time: this process stood still, or could not reach the store, for longer than it
    /// lives. Once so, it stays so. A long job that must not run twice looks before each step, and
    /// ends.
    ///
    /// ```
    /// use tower_throttle::{CheckError, Limiter};
    ///
    /// async fn export(limiter: &Limiter, pages: &[&str]) -> Result<(), CheckError> {
    ///     let held = limiter.hold("exports", "everybody").await?;
    ///     for page in pages {
    ///         if !held.is_allowed() || held.has_lapsed() {
    ///             break;
    ///         }
    ///         println!("exporting {page}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// Only an answer of the store tells that a lease lives: one that this process granted by itself
    /// ([`FailureMode::Local`](crate::FailureMode::Local)) has lapsed after its first life. It is not
    /// known whether the store has lost its data, was told to forget the key, or had its clock set
    /// ahead. Without a lease there is nothing that could lapse, as under another limit or for a
    /// request that passed for lack of an answer: `false`.
    pub fn has_lapsed(&self) -> bool {
        self.taken.has_lapsed()
    }

    /// Nobody waited for the answer.
    pub(super) fn leave(self) {
        self.taken.leave();
    }

    /// Called when the permits are available and about to be used.
    pub(crate) fn go_on(&mut self) {
        self.taken.go_on();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}
