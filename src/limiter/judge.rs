//! How a request is judged: all policies that are about it, in one question.

use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use super::taken::{Taken, TakenByRequest};
use super::{Limiter, answered};
use crate::algorithm::{Action, LeaseId, Take};
use crate::decision::{Decision, Decisions};
use crate::error::StoreError;
use crate::policy::Unreadable;
use crate::request::RequestHead;
use crate::store::{Answer, Check, PendingAnswer};
use crate::time::Micros;

impl Limiter {
    /// Asks all policies that are about this request, at once.
    pub(crate) fn judge(&self, request: &RequestHead<'_>) -> Result<Judging, Refusal> {
        let mut asked = Asked::default();
        let mut checks: SmallVec<[Check<'_>; 4]> = SmallVec::new();
        for (position, policy) in self.0.policies.iter().enumerate() {
            if !policy.applies(request) {
                continue;
            }
            let read = policy.read(request).map_err(|reason| Refusal {
                policy: policy.id.name().to_owned(),
                reason,
            })?;
            let Some(read) = read else { continue };
            let subject = self.subject(&read.key);
            let take = Take {
                cost: read.cost,
                patience: policy.patience,
                lease: read.algorithm.lease().map(|_| LeaseId::new()),
            };
            checks.extend(policy.checks(subject, read.algorithm, Action::Take(take)));
            asked.positions.push(position);
            asked.has_penalties |= policy.penalty.is_some();
            asked.may_give_back |= policy.may_give_back(&read.algorithm);
        }
        if checks.is_empty() {
            return Ok(Judging::Done(Verdict::of_nobody(self.clone())));
        }
        // Before asking, so that what is taken while nobody listens any more is given back.
        let taken = asked.may_give_back.then(|| {
            let mut taken = Box::new(Taken::asking(self.clone()));
            let is_policys_own = |check: &&Check<'_>| !check.algorithm.is_penalty();
            let own = checks.iter().filter(is_policys_own);
            for (position, check) in asked.positions.iter().zip(own) {
                taken.add(*position, check);
            }
            taken
        });
        Ok(match self.0.store.ask(&checks) {
            Answer::Ready(answer) => Judging::Done(self.verdict(asked, taken, answer)),
            Answer::Pending(answer) => Judging::Asked(PendingVerdict {
                limiter: self.clone(),
                asking: Some(Asking {
                    asked,
                    taken,
                    answer,
                    is_sent: false,
                }),
            }),
        })
    }

    fn verdict(
        &self,
        asked: Asked,
        mut taken: TakenByRequest,
        answer: Result<Decisions, StoreError>,
    ) -> Verdict {
        let decisions = asked.merged(self, answered(answer));
        if let Some(taken) = &mut taken {
            taken.answered(decisions.iter());
        }
        Verdict {
            limiter: self.clone(),
            positions: asked.positions,
            decisions,
            taken,
        }
    }
}

/// Which policies were asked.
#[derive(Default)]
struct Asked {
    /// Their positions.
    positions: SmallVec<[usize; 4]>,
    has_penalties: bool,
    may_give_back: bool,
}

impl Asked {
    /// One decision for each policy, whatever the number of its checks.
    fn merged(&self, limiter: &Limiter, decisions: Decisions) -> Decisions {
        if !self.has_penalties {
            return decisions;
        }
        let mut each = decisions.iter();
        let policies = self.positions.iter();
        policies
            .map(|&position| limiter.0.policies[position].decision(&mut each))
            .collect()
    }
}

/// A request that is being judged.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
pub(crate) enum Judging {
    Done(Verdict),
    Asked(PendingVerdict),
}

/// A verdict that takes a trip to the store.
pub(crate) struct PendingVerdict {
    limiter: Limiter,
    /// Taken when the answer is there.
    asking: Option<Asking>,
}

struct Asking {
    asked: Asked,
    taken: TakenByRequest,
    answer: PendingAnswer,
    /// Whether the store may have been asked.
    is_sent: bool,
}

impl PendingVerdict {
    /// The verdict, once the answer is there.
    pub(crate) fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let asking = self.asking.as_mut().expect("polled after it was done");
        asking.is_sent = true;
        let answer = ready!(asking.answer.as_mut().poll(cx));
        let Asking { asked, taken, .. } = self.asking.take().expect("it was there");
        Poll::Ready(self.limiter.verdict(asked, taken, answer))
    }
}

impl Drop for PendingVerdict {
    /// What is taken ahead of time keeps others waiting, and how to give that back only the answer
    /// says: it is awaited all the same.
    fn drop(&mut self) {
        let Some(asking) = self.asking.take().filter(|asking| asking.is_sent) else {
            return;
        };
        let taken = asking.taken.as_ref();
        let Some(runtime) = taken.and_then(|taken| taken.runtime_to_wait_on()) else {
            return;
        };
        let limiter = self.limiter.clone();
        runtime.spawn(async move {
            let Asking {
                asked,
                taken,
                answer,
                ..
            } = asking;
            drop(limiter.verdict(asked, taken, answer.await));
        });
    }
}

/// All decisions about one request, and who took them.
pub(crate) struct Verdict {
    limiter: Limiter,
    positions: SmallVec<[usize; 4]>,
    decisions: Decisions,
    taken: TakenByRequest,
}

impl Verdict {
    pub(crate) fn of_nobody(limiter: Limiter) -> Self {
        Self {
            limiter,
            positions: SmallVec::new(),
            decisions: Decisions::default(),
            taken: None,
        }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.decisions.all_allow()
    }

    /// How long the request is held up.
    pub(crate) fn delay(&self) -> Micros {
        let delays = self.decisions.iter().map(|decision| decision.delay);
        delays.max().unwrap_or_default()
    }

    /// What the request has taken and may have to give back.
    pub(crate) fn take_taken(&mut self) -> TakenByRequest {
        self.taken.take()
    }

    /// Each policy's name and decision.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &Decision)> + Clone {
        let names = self
            .positions
            .iter()
            .map(|&position| self.limiter.0.policies[position].id.name());
        names.zip(self.decisions.iter())
    }

    /// The decision that a rejection is about.
    pub(crate) fn denied_by(&self) -> Option<(&str, &Decision)> {
        self.each().nth(self.decisions.denied_by()?)
    }
}

/// A request that cannot be judged: which policy could not read it, and why.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) policy: String,
    pub(crate) reason: Unreadable,
}
