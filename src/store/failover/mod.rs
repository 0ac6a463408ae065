//! What happens when the store does not answer: a deadline for every question, a circuit breaker
//! for a store that keeps failing, remembered denials, and the failure mode of each policy. A
//! `Store` around another store; it never fails itself.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::breaker::{Admission, Breaker};
use self::circuit::Pass;
use self::fallback::Fallback;
use self::pending::Asked;
use self::watch::Watch;
use super::owned::{OwnedCheck, of_each};
use super::{Answer, Check, GivenBack, PendingAnswer, Store};
use crate::decision::Decisions;
use crate::error::StoreErrorKind;
use crate::observe::Observers;
use crate::per_thread::Spread;

mod breaker;
mod circuit;
mod fallback;
#[cfg(feature = "memory")]
mod local;
mod mode;
mod outage;
mod pending;
mod watch;

pub use self::mode::FailureMode;
#[cfg(feature = "axum")]
pub(crate) use self::outage::Consequences;
pub(crate) use self::outage::Enforced;
pub use self::outage::Outage;
pub(crate) use self::pending::PendingDecisions;

/// Puts the deadline, the circuit breaker and the failure modes around a store.
pub(crate) struct Failover {
    inner: Arc<dyn Store>,
    deadline: Duration,
    breaker: Spread<Breaker>,
    watch: Arc<Watch>,
    fallback: Spread<Fallback>,
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
            breaker: Spread::new(breaker),
            fallback: Spread::new(Fallback::new(Arc::clone(&inner))),
            inner,
            deadline,
            watch: Arc::default(),
        }
    }

    /// Asks, and passes the decisions to `read` where the store has put them: moving them would
    /// copy room for several. Returns the future of those that are in flight.
    #[inline]
    pub(crate) fn ask_and_read<T>(
        &self,
        checks: &[Check<'_>],
        read: impl FnOnce(&Decisions) -> T,
    ) -> Result<T, Pin<Box<PendingDecisions>>> {
        let decided = match self.pass_at_once() {
            Some(pass) => {
                let answer = self.inner.ask(checks);
                if let Some(decisions) = usable_at_once(&answer, checks) {
                    return Ok(read(decisions));
                }
                let admission = Admission::Pass(pass);
                match answer {
                    Answer::Pending(answer) => {
                        return Err(self.on_its_way(checks, admission, answer));
                    }
                    answer => self.later_or_otherwise(checks, admission, answer)?,
                }
            }
            None => self.ask_with_care(checks, Care::Usual)?,
        };
        Ok(read(&decided))
    }

    /// Asks even while the store is left alone, for what has to be given back before it is too late.
    pub(crate) fn ask_regardless(&self, checks: &[Check<'_>]) -> Answer {
        answer_of(self.ask_with_care(checks, Care::Regardless))
    }

    /// Where whatever is done for the store should run, if not where it is asked.
    pub(crate) fn home(&self) -> Option<Handle> {
        self.inner.runtime()
    }

    /// How long a question may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// What the store gives back by itself.
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
            return self.ask_if_admitted(&left, care);
        }
        self.ask_if_admitted(checks, care)
    }

    fn ask_if_admitted(&self, checks: &[Check<'_>], care: Care) -> AskedNow {
        let regardless = || match care {
            Care::Usual => None,
            Care::Regardless => Some(Admission::Pass(Pass::regardless())),
        };
        match Breaker::admit(&self.breaker).or_else(regardless) {
            Some(admission) => {
                let answer = self.inner.ask(checks);
                self.later_or_otherwise(checks, admission, answer)
            }
            None => Ok(self.left_alone(checks)),
        }
    }

    /// Lets a question through to the store while neither the breaker nor local counts have a say.
    #[inline]
    fn pass_at_once(&self) -> Option<Pass> {
        #[cfg(feature = "memory")]
        if self.fallback.local.is_used() {
            return None;
        }
        self.breaker.pass_while_closed()
    }

    // Out of line: a store that answers from memory never needs it.
    #[inline(never)]
    fn later_or_otherwise(
        &self,
        checks: &[Check<'_>],
        admission: Admission,
        answer: Answer,
    ) -> AskedNow {
        // An immediate answer, good or bad, has cost nothing that the breaker could save. It may
        // come from memory in front of the store, so it shows nothing about the store. A probe that
        // ends this way does not count, and the next question probes.
        let why = match answer {
            Answer::Pending(answer) => return Err(self.on_its_way(checks, admission, answer)),
            Answer::Ready(Ok(decisions)) if decisions.len() == checks.len() => {
                return Ok(decisions);
            }
            Answer::Ready(Ok(_)) => StoreErrorKind::BadReply,
            Answer::Ready(Err(error)) => {
                self.breaker.warn_if_lasting(&error);
                error.kind()
            }
        };
        Ok(self.decided(checks, why))
    }

    #[inline(never)]
    fn on_its_way(
        &self,
        checks: &[Check<'_>],
        admission: Admission,
        answer: PendingAnswer,
    ) -> Pin<Box<PendingDecisions>> {
        let asked = Asked {
            answer,
            checks: of_each(checks, OwnedCheck::of),
            fallback: self.fallback.hold(),
            ticket: Breaker::sent(&self.breaker, admission, self.deadline),
            timeout: self.deadline,
            asked: None,
            deadline: None,
            is_over: false,
        };
        Box::pin(PendingDecisions::new(asked, self.inner.runtime()))
    }

    #[cold]
    #[inline(never)]
    fn left_alone(&self, checks: &[Check<'_>]) -> Decisions {
        // What the watch begins belongs where everything of the store runs.
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

/// Whether a store that is left alone is asked.
#[derive(Clone, Copy)]
enum Care {
    Usual,
    Regardless,
}

impl Store for Failover {
    /// Always answers `Ok`: an error becomes each check's own failure mode.
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        answer_of(self.ask_and_read(checks, Decisions::clone))
    }
}

fn answer_of(asked: AskedNow) -> Answer {
    match asked {
        Ok(decisions) => Answer::Ready(Ok(decisions)),
        Err(pending) => Answer::Pending(pending),
    }
}

#[inline]
fn usable_at_once<'a>(answer: &'a Answer, checks: &[Check<'_>]) -> Option<&'a Decisions> {
    match answer {
        Answer::Ready(Ok(decisions)) if decisions.len() == checks.len() => Some(decisions),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
