//! What happens when the store gives no answer: a deadline on every question, a circuit breaker
//! that leaves a store alone which fails again and again, and the failure mode of each policy. A
//! `Store` around a store that never fails itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::breaker::{Admission, Ticket};
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

    pub(crate) fn breaker(&self) -> Arc<Breaker> {
        Arc::clone(&self.breaker)
    }

    #[inline]
    fn ask_store(&self, checks: &[Check<'_>]) -> Answer {
        match self.breaker.admit() {
            Some(admission) => self.ask_admitted(checks, admission),
            None => self.left_alone(checks),
        }
    }

    #[inline]
    fn ask_admitted(&self, checks: &[Check<'_>], admission: Admission) -> Answer {
        // One variable from the store to the caller: moving it would copy room for several decisions.
        let mut answer = self.inner.ask(checks);
        if !is_usable_at_once(&answer, checks) {
            answer = self.later_or_otherwise(checks, admission, answer);
        }
        answer
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

    #[cfg(feature = "memory")]
    #[inline(never)]
    fn ask_here_and_there(&self, checks: &[Check<'_>]) -> Answer {
        match self.fallback.local.do_here(checks) {
            Some(left) => self.ask_store(&left),
            None => self.ask_store(checks),
        }
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
        #[cfg(feature = "memory")]
        if self.fallback.local.is_used() {
            return self.ask_here_and_there(checks);
        }
        self.ask_store(checks)
    }
}

fn is_usable_at_once(answer: &Answer, checks: &[Check<'_>]) -> bool {
    matches!(answer, Answer::Ready(Ok(decisions)) if decisions.len() == checks.len())
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
