//! The log messages of the breaker. Each names the store, and what its policies decide, for the operator
//! on call.

use std::sync::Arc;
use std::time::Duration;

use super::outage::{Consequences, Enforced, Outage};
use crate::error::{StoreError, StoreErrorKind};
use crate::observer::BreakerState;
use crate::one_line::OneLine;
use crate::task::catch_panic;
use crate::trace::{self, SharedLogThrottle};

/// A change of the breaker's state.
pub(super) struct StateChange {
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    /// Why the breaker opened, or had opened.
    pub(super) why: Option<StoreErrorKind>,
    /// The failure that caused the change, if one did.
    pub(super) failure: Option<StoreError>,
    /// The outage that the change has ended.
    pub(super) ended: Option<Outage>,
}

pub(super) struct BreakerLog {
    /// The store's name.
    store: String,
    policies: Arc<dyn Enforced>,
    /// For each kind of failure.
    warned_of_lasting: [SharedLogThrottle; StoreErrorKind::EACH.len()],
    pub(super) warned_of_part: SharedLogThrottle,
}

impl BreakerLog {
    pub(super) fn new(store: String, policies: Arc<dyn Enforced>) -> Self {
        Self {
            store,
            policies,
            warned_of_lasting: Default::default(),
            warned_of_part: SharedLogThrottle::default(),
        }
    }

    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Logs the beginning and the end of an outage. The changes in between are probes.
    pub(super) fn changed(&self, change: &StateChange) {
        // A subscriber that panics must not keep later changes from observers.
        catch_panic(|| match (change.from, change.to, change.why) {
            // `warn_if_lasting` logs such a failure.
            (BreakerState::Closed, _, Some(StoreErrorKind::Configuration)) => {}
            (BreakerState::Closed, _, Some(why)) => self.opened(why, change.failure.as_ref()),
            (_, BreakerState::Closed, Some(why)) => self.closed(why, change.ended.as_ref()),
            _ => {}
        });
    }

    fn opened(&self, why: StoreErrorKind, failure: Option<&StoreError>) {
        let causes = failure.and_then(StoreError::causes);
        trace::warn!(
            reason = %why,
            error = causes.as_deref(),
            "rate limiting: {} {}, the circuit is open: {}",
            self.named(),
            does(why),
            self.consequences()
        );
    }

    fn closed(&self, why: StoreErrorKind, outage: Option<&Outage>) {
        let duration = outage.map_or(Duration::ZERO, |outage| outage.duration);
        let uncounted = outage.map_or(0, |outage| outage.uncounted);
        trace::info!(
            reason = %why,
            duration_ms = duration.as_millis() as u64,
            uncounted = uncounted,
            "rate limiting: {} is back after {:.1} s, {} requests passed uncounted",
            self.named(),
            duration.as_secs_f64(),
            uncounted
        );
    }

    /// Logs once a minute a failure that does not go away by itself, whether or not it opens the
    /// breaker.
    pub(super) fn warn_if_lasting(&self, error: &StoreError) {
        let until = match error.kind() {
            StoreErrorKind::Configuration => {
                "until its address, password and permissions are fixed"
            }
            StoreErrorKind::Full => "for new keys",
            StoreErrorKind::Overloaded => "for further requests",
            StoreErrorKind::CorruptValue => "for these keys",
            _ => return,
        };
        self.warn_of_lasting(error, until);
    }

    #[cold]
    fn warn_of_lasting(&self, error: &StoreError, until: &str) {
        let kind = error.kind();
        if self.warned_of_lasting[kind as usize].try_warn() {
            let causes = error.causes();
            trace::warn!(
                reason = %kind,
                error = causes.as_deref(),
                "rate limiting: {} {}: {}, {}",
                self.named(),
                does(kind),
                until,
                self.consequences()
            );
        }
    }

    #[cold]
    pub(super) fn warn_of_part(&self, error: &StoreError) {
        if self.warned_of_part.try_warn() {
            let causes = error.causes();
            trace::warn!(
                reason = %error.kind(),
                error = causes.as_deref(),
                "rate limiting: a part of {} fails: for its keys, {}",
                self.named(),
                self.consequences()
            );
        }
    }

    fn named(&self) -> OneLine<&str> {
        OneLine(&self.store)
    }

    fn consequences(&self) -> Consequences {
        Consequences(self.policies.failure_modes())
    }
}

/// The failure as a predicate of the store's name.
fn does(failure: StoreErrorKind) -> &'static str {
    match failure {
        StoreErrorKind::Configuration => "refuses this process",
        StoreErrorKind::Unreachable => "cannot be reached",
        StoreErrorKind::Interrupted => "breaks connections before it answers",
        StoreErrorKind::TimedOut => "does not answer within the deadline",
        StoreErrorKind::Busy => "cannot serve scripts for now",
        StoreErrorKind::Full => "has reached its memory limit",
        StoreErrorKind::Overloaded => "has max_in_flight questions of this process in flight",
        StoreErrorKind::BreakerOpen => "is not asked while the circuit is open",
        StoreErrorKind::CorruptValue => "holds foreign values under the keys of the limiter",
        StoreErrorKind::BadReply => "gives unreadable answers",
    }
}
