//! `Failover`: a `Store` around another store that never fails itself. It adds a deadline for every
//! question, a circuit breaker, remembered denials, and the failure mode of each policy.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::breaker::Breaker;
use self::fallback::Fallback;
use self::pending::Asked;
use self::recovery::RecoveryWatch;
use super::check::{OwnedCheck, of_each};
use super::{Answer, Check, GivenBack, PendingAnswer, Store};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::observer::Observers;
use crate::sharded::ShardedArc;

mod breaker;
mod breaker_log;
mod circuit;
mod failure_rate;
mod fallback;
#[cfg(feature = "memory")]
mod local;
mod outage;
mod pending;
mod recovery;

#[cfg(feature = "operator")]
pub(crate) use self::outage::Consequences;
pub(crate) use self::outage::Enforced;
pub use self::outage::Outage;
pub(crate) use self::pending::PendingDecisions;

/// Puts the deadline, the circuit breaker and the failure modes around a store.
pub(crate) struct Failover {
    inner: Arc<dyn Store>,
    deadline: Duration,
    breaker: ShardedArc<Breaker>,
    watch: Arc<RecoveryWatch>,
    fallback: ShardedArc<Fallback>,
}

impl Failover {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        deadline: Duration,
        policies: Arc<dyn Enforced>,
        observers: Observers,
    ) -> Self {
        let (has_parts, store) = (inner.fails_in_parts(), inner.name());
        let breaker = Breaker::new(has_parts, store, policies, observers);
        Self {
            breaker: ShardedArc::new(breaker),
            fallback: ShardedArc::new(Fallback::new(Arc::clone(&inner))),
            inner,
            deadline,
            watch: Arc::default(),
        }
    }

    /// Asks, and writes the decisions into the caller's slot for them. Returns the future of those
    /// that are in flight.
    #[inline]
    pub(crate) fn decide(
        &self,
        checks: &[Check<'_>],
        decisions: &mut Decisions,
    ) -> Option<Pin<Box<PendingDecisions>>> {
        let asked = if self.asks_freely() {
            match self.inner.ask(checks) {
                Answer::Ready(Ok(ref mut decided)) if decided.len() == checks.len() => {
                    decisions.replace_by(decided);
                    return None;
                }
                Answer::Ready(answer) => Ok(self.ready(checks, answer)),
                Answer::Pending(answer) => self.pending(checks, answer, Care::Usual),
            }
        } else {
            self.ask_with_care(checks, Care::Usual)
        };
        match asked {
            Ok(decided) => {
                *decisions = decided;
                None
            }
            Err(pending) => Some(pending),
        }
    }

    /// Asks even while the circuit is open, for permits that must be given back in time.
    pub(crate) fn ask_regardless(&self, checks: &[Check<'_>]) -> Answer {
        match self.ask_with_care(checks, Care::Regardless) {
            Ok(decisions) => Answer::Ready(Ok(decisions)),
            Err(pending) => Answer::Pending(pending),
        }
    }

    /// The runtime for background work of the store, if it is not the caller's.
    pub(crate) fn home(&self) -> Option<Handle> {
        self.inner.runtime()
    }

    /// How long a question may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// What the store is giving back in the background.
    pub(crate) fn given_back(&self) -> Option<GivenBack> {
        self.inner.given_back()
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Asks when the breaker or local counts have a say.
    #[inline(never)]
    fn ask_with_care(&self, checks: &[Check<'_>], care: Care) -> AskedNow {
        #[cfg(feature = "memory")]
        if let Some(left) = self.fallback.local.do_here(checks) {
            return self.ask_if_allowed(&left, care);
        }
        self.ask_if_allowed(checks, care)
    }

    fn ask_if_allowed(&self, checks: &[Check<'_>], care: Care) -> AskedNow {
        if care == Care::Usual && !self.breaker.may_call() {
            return Ok(self.left_alone(checks));
        }
        match self.inner.ask(checks) {
            Answer::Ready(answer) => Ok(self.ready(checks, answer)),
            Answer::Pending(answer) => self.pending(checks, answer, care),
        }
    }

    /// Whether neither the breaker nor local counts have a say.
    #[inline]
    fn asks_freely(&self) -> bool {
        #[cfg(feature = "memory")]
        if self.fallback.local.is_used() {
            return false;
        }
        self.breaker.is_closed()
    }

    /// An immediate answer or error has cost nothing that the breaker could save. It may come from memory,
    /// so it says nothing about the store.
    #[inline(never)]
    fn ready(&self, checks: &[Check<'_>], answer: Result<Decisions, StoreError>) -> Decisions {
        let why = match answer {
            Ok(decisions) if decisions.len() == checks.len() => return decisions,
            Ok(_) => StoreErrorKind::BadReply,
            Err(error) => {
                self.breaker.log.warn_if_lasting(&error);
                error.kind()
            }
        };
        self.decided(checks, why)
    }

    // Out of line: a store that answers from memory never needs it.
    #[inline(never)]
    fn pending(&self, checks: &[Check<'_>], answer: PendingAnswer, care: Care) -> AskedNow {
        let ticket = match (Breaker::begin_call(&self.breaker, self.deadline), care) {
            (Some(guard), _) => guard,
            (None, Care::Regardless) => Breaker::begin_call_regardless(&self.breaker),
            // Another question probes. This one was not polled, so it was not asked.
            (None, Care::Usual) => return Ok(self.left_alone(checks)),
        };
        let runtime = self.inner.runtime();
        let asked = Asked {
            answer,
            checks: of_each(checks, OwnedCheck::of),
            fallback: self.fallback.hold(),
            ticket,
            timeout: self.deadline,
            asked: None,
            deadline: None,
            is_over: false,
        };
        Err(Box::pin(PendingDecisions::new(asked, runtime)))
    }

    #[cold]
    #[inline(never)]
    fn left_alone(&self, checks: &[Check<'_>]) -> Decisions {
        // The watch runs where the store runs.
        let home = self.inner.runtime();
        let _at_home = home.as_ref().map(Handle::enter);
        self.watch
            .not_asked(&self.breaker, || self.inner.recovered(self.deadline));
        self.decided(checks, StoreErrorKind::BreakerOpen)
    }

    #[cold]
    #[inline(never)]
    fn decided(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
        let decisions = self.fallback.decide(checks, why);
        self.breaker.decided_without(checks, &decisions);
        decisions
    }
}

/// The decisions, or the future of them.
type AskedNow = Result<Decisions, Pin<Box<PendingDecisions>>>;

/// Whether the store is asked while the circuit is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    Usual,
    Regardless,
}

impl Store for Failover {
    /// Always answers `Ok`: an error becomes each check's own failure mode.
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let mut decisions = Decisions::default();
        match self.decide(checks, &mut decisions) {
            None => Answer::Ready(Ok(decisions)),
            Some(pending) => Answer::Pending(pending),
        }
    }
}

#[cfg(test)]
mod tests;
