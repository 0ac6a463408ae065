//! How a request is judged: all policies that are about it, in one question.

use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use super::judged::{Asked, AskedPolicy, Judged};
use super::taken::{Taken, TakenByRequest};
use super::{Limiter, answered};
use crate::access::AccessList;
use crate::algorithm::{Action, LeaseId, Take};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::mode::Mode;
use crate::observe::RefusalReason;
use crate::policy::{ReadyPolicy, Unreadable};
use crate::request::RequestHead;
use crate::store::{Check, PendingAnswer};
use crate::trace::Span;

impl Limiter {
    /// Asks all policies that are about this request, at once.
    pub(crate) fn judge(&self, request: &RequestHead<'_>) -> Result<Judging, Refusal> {
        let judging = self.ask_about(request);
        if let Err(refusal) = &judging {
            self.report_refusal(refusal);
        }
        judging
    }

    fn ask_about(&self, request: &RequestHead<'_>) -> Result<Judging, Refusal> {
        if !self.is_on() {
            return Ok(Judging::by_nobody());
        }
        let rules = self.0.rules.load();
        let is_listed = |list: &AccessList| {
            let found = list.has_address_of(request);
            found.map_err(|text| Refusal::of_nobody(Unjudged::Misconfigured(text)))
        };
        if is_listed(&rules.denied)? {
            return Err(Refusal::of_nobody(Unjudged::Listed));
        }
        if rules.is_exempt(request) {
            return Ok(Judging::by_nobody());
        }
        if is_listed(&rules.allowed)? {
            return match rules.refuses_key_of(request) {
                Some(policy) => Err(Refusal::by(policy, Unjudged::Listed)),
                None => Ok(Judging::by_nobody()),
            };
        }
        let mut asked = Asked::under(rules);
        let rules = &asked.rules;
        let mut checks: SmallVec<[Check<'_>; 4]> = SmallVec::new();
        for (position, policy) in rules.policies.iter().enumerate() {
            let mode = policy.mode();
            if mode == Mode::Off || !policy.applies(request) {
                continue;
            }
            let read = match rules.read(policy, request, &self.0.subjects) {
                Ok(Some(read)) => read,
                Ok(None) => continue,
                // What only counts does not refuse; but the list is not the policy's.
                Err(reason) if mode == Mode::Shadow && reason != Unjudged::Listed => {
                    self.report_refusal(&Refusal::by(policy, reason));
                    continue;
                }
                Err(reason) => return Err(Refusal::by(policy, reason)),
            };
            let subject = read.subject;
            let take = Take {
                cost: read.cost,
                patience: policy.patience,
                lease: read.judges.first.lease().map(|_| LeaseId::new()),
                is_final: true,
            };
            let action = Action::Take(take);
            if policy.count_checks() == 1 {
                let is_shadow = mode == Mode::Shadow;
                checks.push(policy.check(0, subject, read.judges.first, action, is_shadow));
            } else {
                checks.extend(policy.checks(subject, &read.judges, action, mode));
            }
            asked.each.push(AskedPolicy {
                position,
                subject,
                mode,
            });
            asked.has_shadows |= mode == Mode::Shadow;
            asked.has_several_checks |= policy.count_checks() > 1;
            asked.may_give_back |= policy.may_give_back(&read.judges.first);
        }
        if checks.is_empty() {
            return Ok(Judging::by_nobody());
        }
        if asked.may_give_back {
            // A request that is dropped while one policy holds it up gives back what all have given.
            for check in &mut checks {
                if let Action::Take(take) = &mut check.action {
                    take.is_final = false;
                }
            }
        }
        // Before asking, so that what is taken while nobody listens any more is given back.
        let taken = asked.may_give_back.then(|| {
            let mut taken = Box::new(Taken::asking(self.clone()));
            let is_policys_own = |check: &&Check<'_>| !check.algorithm.is_penalty();
            let mut own = checks.iter().filter(is_policys_own);
            for policy in &asked.each {
                let policy = asked.policy(policy);
                taken.add(policy, own.by_ref().take(policy.count_rates()));
            }
            taken
        });
        let mut decisions = Decisions::default();
        let read = |answer: &Decisions| decisions.clone_from(answer);
        let answered = self.0.store.ask_and_read(&checks, read);
        drop(checks);
        Ok(match answered {
            Ok(()) => Judging::Done(asked.judged(self, taken, decisions)),
            Err(answer) => Judging::Asked(PendingVerdict {
                limiter: self.clone(),
                asking: Some(Asking {
                    span: Span::asking(asked.each.len()),
                    asked: asked.kept(),
                    taken,
                    answer,
                    is_sent: false,
                }),
            }),
        })
    }
}

/// A request that is being judged.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
pub(crate) enum Judging {
    Done(Judged),
    Asked(PendingVerdict),
}

impl Judging {
    pub(crate) fn by_nobody() -> Self {
        Self::Done(Judged::by_nobody())
    }
}

/// A verdict that takes a trip to the store.
pub(crate) struct PendingVerdict {
    limiter: Limiter,
    /// Taken when the answer is there.
    asking: Option<Asking>,
}

struct Asking {
    span: Span,
    asked: Asked,
    taken: TakenByRequest,
    answer: PendingAnswer,
    /// Whether the store may have been asked.
    is_sent: bool,
}

impl Asking {
    fn judged(self, limiter: &Limiter, answer: Result<Decisions, StoreError>) -> Judged {
        let judged = self.asked.judged(limiter, self.taken, answered(answer));
        self.span.answered(judged.is_allowed());
        judged
    }
}

impl PendingVerdict {
    /// The verdict, once the answer is there.
    pub(crate) fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Judged> {
        let asking = self.asking.as_mut().expect("polled after it was done");
        asking.is_sent = true;
        let answer = asking.answer.as_mut();
        let answer = ready!(asking.span.in_scope(|| answer.poll(cx)));
        let asking = self.asking.take().expect("it was there");
        Poll::Ready(asking.judged(&self.limiter, answer))
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
            let mut asking = asking;
            let answer = asking.answer.as_mut().await;
            drop(asking.judged(&limiter, answer));
        });
    }
}

/// A request that no policy was asked about, and is not let through: because of which policy, when
/// it is one, and why.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) policy: Option<String>,
    pub(crate) reason: Unjudged,
}

/// Why no policy was asked about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unjudged {
    /// The client is on the list of those who are refused.
    Listed,
    /// It does not say whose it is, and the policy insists.
    NoKey,
    /// It states a cost that cannot be read.
    BadCost(String),
    /// The server does not provide what it takes.
    Misconfigured(String),
}

impl Refusal {
    pub(super) fn by(policy: &ReadyPolicy, reason: Unjudged) -> Self {
        Self {
            policy: Some(policy.id.name().to_owned()),
            reason,
        }
    }

    fn of_nobody(reason: Unjudged) -> Self {
        Self {
            policy: None,
            reason,
        }
    }
}

impl Unjudged {
    pub(super) fn in_a_word(&self) -> RefusalReason {
        match self {
            Self::Listed => RefusalReason::Listed,
            Self::NoKey => RefusalReason::MissingKey,
            Self::BadCost(_) => RefusalReason::BadCost,
            Self::Misconfigured(_) => RefusalReason::Misconfigured,
        }
    }
}

impl From<Unreadable> for Unjudged {
    fn from(reason: Unreadable) -> Self {
        match reason {
            Unreadable::NoKey => Self::NoKey,
            Unreadable::BadCost(text) => Self::BadCost(text),
            Unreadable::Misconfigured(text) => Self::Misconfigured(text),
        }
    }
}
