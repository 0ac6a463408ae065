//! What happens when the store gives no answer: a deadline on every question, a circuit breaker
//! that leaves a store alone which fails again and again, and the failure mode of each policy. A
//! `Store` around a store that never fails itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::breaker::{Admission, Ticket};
use self::circuit::Pass;
use self::fallback::{Fallback, Kept};
use self::watch::Watch;
use super::{Answer, Check, PendingAnswer, Store};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::observe::Observers;

mod breaker;
mod circuit;
mod fallback;
#[cfg(feature = "memory")]
mod local;
mod mode;
mod watch;

pub(crate) use self::breaker::Breaker;
pub use self::mode::FailureMode;

/// Puts the deadline, the circuit breaker and the failure modes around a store.
pub(crate) struct Failover<S> {
    inner: S,
    deadline: Duration,
    breaker: Arc<Breaker>,
    watch: Arc<Watch>,
    fallback: Fallback,
}

impl<S: Store> Failover<S> {
    pub(crate) fn new(inner: S, deadline: Duration, observers: Observers) -> Self {
        Self {
            inner,
            deadline,
            breaker: Arc::new(Breaker::new(observers)),
            watch: Arc::default(),
            fallback: Fallback::default(),
        }
    }

    /// [Asks](Store::ask) for one who only reads the decisions: what is read of them, or that they are
    /// on their way. They are looked at where the store has put them, as moving them copies room for
    /// several.
    #[inline]
    pub(crate) fn ask_and_read<T>(
        &self,
        checks: &[Check<'_>],
        read: impl FnOnce(&Decisions) -> T,
    ) -> Result<T, PendingAnswer> {
        let answer = match self.pass_at_once() {
            Some(pass) => {
                let answer = self.inner.ask(checks);
                if let Some(decisions) = usable_at_once(&answer, checks) {
                    return Ok(read(decisions));
                }
                self.later_or_otherwise(checks, Admission::Pass(pass), answer)
            }
            None => self.ask_with_care(checks),
        };
        match answer {
            Answer::Ready(answer) => Ok(read(&answer.expect("an error was turned into decisions"))),
            Answer::Pending(answer) => Err(answer),
        }
    }

    pub(crate) fn breaker(&self) -> Arc<Breaker> {
        Arc::clone(&self.breaker)
    }

    /// What is asked when the breaker, or what was judged locally, has a say.
    #[inline(never)]
    fn ask_with_care(&self, checks: &[Check<'_>]) -> Answer {
        #[cfg(feature = "memory")]
        if let Some(left) = self.fallback.local.do_here(checks) {
            return self.ask_if_admitted(&left);
        }
        self.ask_if_admitted(checks)
    }

    fn ask_if_admitted(&self, checks: &[Check<'_>]) -> Answer {
        match self.breaker.admit() {
            Some(admission) => self.ask_store(checks, admission),
            None => self.left_alone(checks),
        }
    }

    fn ask_store(&self, checks: &[Check<'_>], admission: Admission) -> Answer {
        let answer = self.inner.ask(checks);
        match usable_at_once(&answer, checks) {
            Some(_) => answer,
            None => self.later_or_otherwise(checks, admission, answer),
        }
    }

    /// What lets a question through to the store while nothing else has a say.
    #[inline]
    fn pass_at_once(&self) -> Option<Pass> {
        #[cfg(feature = "memory")]
        if self.fallback.local.is_used() {
            return None;
        }
        self.breaker.pass_while_closed()
    }

    // Out of line, as all that a store which answers from memory has no use for.
    #[inline(never)]
    fn later_or_otherwise(
        &self,
        checks: &[Check<'_>],
        admission: Admission,
        answer: Answer,
    ) -> Answer {
        // An answer that is there at once, good or bad, has cost nothing that the breaker could
        // save, and may come from memory in front of the store: it says nothing about it. A probe
        // that ends so is none, and the next question is.
        match answer {
            Answer::Pending(answer) => self.on_its_way(checks, admission, answer),
            Answer::Ready(Ok(_)) => self.decided(checks, StoreErrorKind::BadReply),
            Answer::Ready(Err(error)) => self.decided(checks, error.kind()),
        }
    }

    fn on_its_way(
        &self,
        checks: &[Check<'_>],
        admission: Admission,
        answer: PendingAnswer,
    ) -> Answer {
        let trip = Trip {
            answer,
            deadline: self.deadline,
            ticket: self.breaker.sent(admission, self.deadline),
        };
        let (checks, fallback) = (Kept::of(checks), self.fallback.clone());
        Answer::Pending(Box::pin(trip.answer_or(checks, fallback)))
    }

    #[cold]
    #[inline(never)]
    fn left_alone(&self, checks: &[Check<'_>]) -> Answer {
        self.watch
            .not_asked(&self.breaker, || self.inner.recovered(self.deadline));
        self.decided(checks, StoreErrorKind::BreakerOpen)
    }

    #[cold]
    #[inline(never)]
    fn decided(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Answer {
        Answer::Ready(Ok(self.fallback.decide(checks, why)))
    }
}

impl<S: Store> Store for Failover<S> {
    /// Always answers `Ok`: an error becomes each check's own failure mode.
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match self.pass_at_once() {
            Some(pass) => self.ask_store(checks, Admission::Pass(pass)),
            None => self.ask_with_care(checks),
        }
    }
}

#[inline]
fn usable_at_once<'a>(answer: &'a Answer, checks: &[Check<'_>]) -> Option<&'a Decisions> {
    match answer {
        Answer::Ready(Ok(decisions)) if decisions.len() == checks.len() => Some(decisions),
        _ => None,
    }
}

/// A question on its way.
struct Trip {
    answer: PendingAnswer,
    deadline: Duration,
    ticket: Ticket,
}

impl Trip {
    async fn answer_or(self, checks: Kept, fallback: Fallback) -> Result<Decisions, StoreError> {
        let asked = Instant::now();
        let answer = match tokio::time::timeout(self.deadline, self.answer).await {
            Ok(Ok(decisions)) if decisions.len() == checks.len() => Ok(decisions),
            Ok(Ok(_)) => Err(StoreErrorKind::BadReply),
            Ok(Err(error)) => Err(error.kind()),
            Err(_elapsed) => Err(StoreErrorKind::TimedOut),
        };
        self.ticket
            .answered(asked.elapsed(), answer.as_ref().err().copied());
        Ok(answer.unwrap_or_else(|why| fallback.decide(&checks.checks(), why)))
    }
}

#[cfg(test)]
mod tests;
