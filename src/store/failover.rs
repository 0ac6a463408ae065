//! What happens when the store gives no answer: a deadline on every question, and the failure mode
//! of each policy. A `Store` around a store that never fails itself.

use std::time::Duration;

use smallvec::SmallVec;

use super::{Answer, Check, PendingAnswer, Store};
use crate::algorithm::Algorithm;
use crate::decision::{Decision, Decisions, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::observe::Observers;
use crate::time::{Micros, SECOND};

/// What a policy decides when the store gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request passes, uncounted. The default: an outage of the store is not one of the
    /// service.
    #[default]
    Allow,
    /// The request is refused with 503, or UNAVAILABLE over gRPC: for limits that protect
    /// something which must not be reached unlimited.
    Deny,
}

/// Puts the deadline and the failure modes around a store.
pub(crate) struct Failover<S> {
    inner: S,
    deadline: Duration,
    #[expect(dead_code, reason = "told of answers by the breaker")]
    observers: Observers,
}

impl<S: Store> Failover<S> {
    pub(crate) fn new(inner: S, deadline: Duration, observers: Observers) -> Self {
        Self {
            inner,
            deadline,
            observers,
        }
    }
}

impl<S: Store> Store for Failover<S> {
    /// Always answers `Ok`: an error becomes each check's own failure mode.
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match self.inner.ask(checks) {
            Answer::Ready(Ok(decisions)) if decisions.len() == checks.len() => {
                Answer::Ready(Ok(decisions))
            }
            Answer::Ready(answer) => Answer::Ready(Ok(Fallback::of(checks).unless(answer))),
            Answer::Pending(answer) => {
                let fallback = Fallback::of(checks);
                Answer::Pending(Box::pin(in_time(answer, self.deadline, fallback)))
            }
        }
    }
}

async fn in_time(
    answer: PendingAnswer,
    deadline: Duration,
    fallback: Fallback,
) -> Result<Decisions, StoreError> {
    let answer = match tokio::time::timeout(deadline, answer).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(StoreError::new(StoreErrorKind::TimedOut)),
    };
    Ok(fallback.unless(answer))
}

/// What to decide for each check if the store fails.
struct Fallback(SmallVec<[(Algorithm, FailureMode); 4]>);

impl Fallback {
    fn of(checks: &[Check<'_>]) -> Self {
        let modes = checks
            .iter()
            .map(|check| (check.algorithm, check.on_store_failure));
        Self(modes.collect())
    }

    /// The answer, unless it is none.
    fn unless(&self, answer: Result<Decisions, StoreError>) -> Decisions {
        match answer {
            Ok(decisions) if decisions.len() == self.0.len() => decisions,
            Ok(_) => self.decide(StoreErrorKind::BadReply),
            Err(error) => self.decide(error.kind()),
        }
    }

    fn decide(&self, kind: StoreErrorKind) -> Decisions {
        let decision = |(algorithm, mode): &(Algorithm, FailureMode)| {
            let outcome = match mode {
                FailureMode::Allow => Outcome::FailedOpen(kind),
                FailureMode::Deny => Outcome::FailedClosed(kind),
            };
            Decision {
                retry_after: Micros::from(SECOND),
                ..Decision::unasked(outcome, algorithm.quota())
            }
        };
        self.0.iter().map(decision).collect()
    }
}
