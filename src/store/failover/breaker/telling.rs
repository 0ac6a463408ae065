//! Reports the breaker's changes to observers, in order, and to the log. The log's texts are for
//! whoever is on call: each says which store it is about, and what becomes of which policies.

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use super::super::outage::{Consequences, Outage};
use super::Breaker;
use crate::caught::caught;
use crate::error::{StoreError, StoreErrorKind};
use crate::observe::{BreakerState, Observer as _};
use crate::one_line::OneLine;
use crate::trace::{self, Warned};

/// A change of the breaker's state.
pub(super) struct Change {
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    /// Why the breaker opened, or had opened.
    pub(super) why: Option<StoreErrorKind>,
    /// The failure that caused the change, if one did.
    pub(super) failure: Option<StoreError>,
    /// The outage that the change has ended.
    pub(super) ended: Option<Outage>,
}

/// When the log last warned of lasting failures.
#[derive(Default)]
pub(super) struct Warnings {
    by_kind: [Warned; StoreErrorKind::EACH.len()],
    pub(super) of_part: Warned,
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
        self.0.lock().changes.next()
    }
}

impl Breaker {
    /// Logs the beginning and the end of an outage. The changes in between are probes.
    fn log(&self, change: &Change) {
        match (change.from, change.to, change.why) {
            // `warn_if_lasting` logs such a failure.
            (BreakerState::Closed, _, Some(StoreErrorKind::Configuration)) => {}
            (BreakerState::Closed, _, Some(why)) => {
                let causes = change.failure.as_ref().and_then(StoreError::causes);
                trace::warn!(
                    reason = %why,
                    error = causes.as_deref(),
                    "rate limiting: {} {}, the circuit is open: {}",
                    self.named(),
                    does(why),
                    self.consequences()
                );
            }
            (_, BreakerState::Closed, Some(why)) => {
                let outage = change.ended;
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
            _ => {}
        }
    }

    /// Logs once a minute a failure that does not go away by itself, whether or not it opens the
    /// breaker.
    pub(in crate::store::failover) fn warn_if_lasting(&self, error: &StoreError) {
        if matches!(
            error.kind(),
            StoreErrorKind::Configuration
                | StoreErrorKind::Full
                | StoreErrorKind::Overloaded
                | StoreErrorKind::ForeignValue
        ) {
            self.warn_of_lasting(error);
        }
    }

    #[cold]
    fn warn_of_lasting(&self, error: &StoreError) {
        let kind = error.kind();
        if !self.is_due(|warnings| &mut warnings.by_kind[kind as usize]) {
            return;
        }
        let until = match kind {
            StoreErrorKind::Configuration => {
                "until its address, password and permissions are fixed"
            }
            StoreErrorKind::Full => "for keys that it does not know yet",
            StoreErrorKind::Overloaded => "for the requests that are too many",
            _ => "for these keys",
        };
        let causes = error.causes();
        trace::warn!(
            reason = %error.kind(),
            error = causes.as_deref(),
            "rate limiting: {} {}: {}, {}",
            self.named(),
            does(kind),
            until,
            self.consequences()
        );
    }

    #[cold]
    pub(super) fn warn_of_part(&self, error: &StoreError) {
        if self.is_due(|warnings| &mut warnings.of_part) {
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

    /// Notes a warning, if one is due. Not while another thread does: each request may come here.
    pub(super) fn is_due(&self, of: impl FnOnce(&mut Warnings) -> &mut Warned) -> bool {
        let mut warnings = match self.warnings.try_lock() {
            Ok(warnings) => warnings,
            Err(TryLockError::Poisoned(warnings)) => PoisonError::into_inner(warnings),
            Err(TryLockError::WouldBlock) => return false,
        };
        of(&mut warnings).try_warn()
    }

    fn named(&self) -> OneLine<&str> {
        OneLine(&self.store)
    }

    fn consequences(&self) -> Consequences {
        Consequences(self.policies.failure_modes())
    }
}

/// What the store does, after its name.
fn does(failure: StoreErrorKind) -> &'static str {
    match failure {
        StoreErrorKind::Configuration => "refuses this process",
        StoreErrorKind::Unreachable => "cannot be reached",
        StoreErrorKind::Interrupted => "breaks connections before it answers",
        StoreErrorKind::TimedOut => "does not answer within the deadline",
        StoreErrorKind::Busy => "refuses questions for now",
        StoreErrorKind::Full => "has reached its memory limit",
        StoreErrorKind::Overloaded => "has as many questions of this process in flight as allowed",
        StoreErrorKind::BreakerOpen => "is left alone",
        StoreErrorKind::ForeignValue => "holds values under our keys that are not ours",
        StoreErrorKind::BadReply => "gives answers that cannot be read",
    }
}
