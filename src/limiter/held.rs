//! `Held`: permits that are given back when it is dropped.

use std::fmt;

use super::taken::Taken;
use crate::decision::Decision;

/// The answer to [`Limiter::hold`](crate::Limiter::hold), and the permits that it has taken, if it
/// has.
///
/// Dropping it gives permits back that are held while something runs. Permits that come back with
/// time stay taken.
#[must_use = "dropping it gives the permits back"]
pub struct Held {
    decision: Decision,
    taken: Taken,
}

impl Held {
    pub(super) fn new(decision: Decision, taken: Taken) -> Self {
        Self { decision, taken }
    }

    /// Whether what they were asked for may go on.
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The answer.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Waits until the permits are there; dropped before, it gives them back.
    pub(crate) async fn waited(mut self) -> Decision {
        self.until_there().await;
        self.go_on();
        self.decision
    }

    /// Waits until the permits are there, and still holds them then.
    pub(crate) async fn until_there(&self) {
        if self.decision.is_allowed() && !self.decision.delay.is_zero() {
            self.taken.limiter().delay(self.decision.delay()).await;
        }
    }

    /// The permits are there and about to be used.
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
