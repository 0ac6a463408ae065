//! Reports the breaker's changes to observers, in order, and to the log.

use super::Breaker;
use crate::caught::caught;
use crate::error::{StoreError, StoreErrorKind};
use crate::observe::{BreakerState, Observer as _};
use crate::trace;

/// A change of the breaker's state.
pub(super) struct Change {
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    /// Why the breaker opened, or had opened.
    pub(super) why: Option<StoreErrorKind>,
    /// The failure that caused the change, if one did.
    pub(super) failure: Option<StoreError>,
}

/// Reports the changes one at a time and in order, without the lock: observers may call the
/// breaker.
pub(super) struct Telling<'a>(pub(super) &'a Breaker);

impl Telling<'_> {
    pub(super) fn tell(self) {
        while let Some(change) = self.next() {
            // Otherwise nobody would be told of later changes.
            caught(|| self.0.log(&change));
            self.0.observers.on_breaker(change.to);
        }
    }

    fn next(&self) -> Option<Change> {
        let mut inner = self.0.lock();
        let next = inner.untold.pop_front();
        inner.is_telling = next.is_some();
        next
    }
}

impl Breaker {
    /// Logs the beginning and the end of an outage. The changes in between are probes.
    fn log(&self, change: &Change) {
        match (change.from, change.to, change.why) {
            // `warn_if_refused` logs such a failure.
            (BreakerState::Closed, _, Some(StoreErrorKind::Configuration)) => {}
            (BreakerState::Closed, _, Some(why)) => {
                let causes = change.failure.as_ref().and_then(StoreError::causes);
                trace::warn!(
                    reason = %why,
                    error = causes.as_deref(),
                    "the store failed too often: it is left alone and the failure modes decide"
                );
            }
            (_, BreakerState::Closed, Some(why)) => {
                trace::info!(reason = %why, "the store is back after it had failed too often");
            }
            _ => {}
        }
    }

    /// Logs a failure that only an operator can mend once a minute, whether or not it opens the
    /// breaker.
    pub(in crate::store::failover) fn warn_if_refused(&self, error: &StoreError) {
        if error.kind() == StoreErrorKind::Configuration {
            self.warn_of_refusal(error);
        }
    }

    #[cold]
    fn warn_of_refusal(&self, error: &StoreError) {
        let is_due = self.lock().warned.try_warn();
        if is_due {
            let causes = error.causes();
            trace::warn!(
                reason = %error,
                error = causes.as_deref(),
                "the store refuses this process: the failure modes decide until its address, \
                 password and rights are mended"
            );
        }
    }

    #[cold]
    pub(super) fn warn_of_part(&self, error: &StoreError) {
        let is_due = self.lock().warned_of_part.try_warn();
        if is_due {
            let causes = error.causes();
            trace::warn!(
                reason = %error,
                error = causes.as_deref(),
                "a part of the store fails: the failure modes decide about its keys"
            );
        }
    }
}
