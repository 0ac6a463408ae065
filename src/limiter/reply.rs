//! `Reply`: what one policy decides, which may take a trip to the store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use super::{Limiter, answered};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::key::Subject;
use crate::mode::Mode;
use crate::policy::ReadyPolicy;
use crate::store::{Answer, Check, PendingAnswer, Store as _};

/// What one policy decides. A decision from memory is there before anything is awaited: what it
/// takes to wait for one from elsewhere is made only for that.
pub(super) enum Reply {
    Decided(Decision),
    Asked(Trip),
}

/// A policy's question that is on its way.
pub(super) struct Trip {
    limiter: Limiter,
    policy: Arc<ReadyPolicy>,
    terms: Terms,
    answer: PendingAnswer,
}

/// What a policy is asked about one subject.
#[derive(Clone, Copy)]
pub(super) struct Question {
    pub(super) subject: Subject,
    pub(super) action: Action,
    pub(super) mode: Mode,
}

/// All of a question that it takes to read the answer.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    subject: Subject,
    mode: Mode,
    /// Whether it asks for permits, and does not only look.
    takes: bool,
}

impl Question {
    pub(super) fn terms(self) -> Terms {
        Terms {
            subject: self.subject,
            mode: self.mode,
            takes: self.action.takes() > 0,
        }
    }

    /// What a policy asks that asks one check.
    #[inline]
    fn only_check<'p>(self, policy: &'p ReadyPolicy) -> Check<'p> {
        let (subject, action) = (self.subject, self.action);
        let is_shadow = self.mode == Mode::Shadow;
        policy.check(0, subject, policy.algorithm, action, is_shadow)
    }

    // Out of line: most policies ask one check.
    #[inline(never)]
    fn checks<'p>(self, policy: &'p ReadyPolicy) -> SmallVec<[Check<'p>; 4]> {
        let judges = policy.judges();
        let checks = policy.checks(self.subject, &judges, self.action, self.mode);
        checks.collect()
    }
}

impl Future for Trip {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        let decisions = answered(answer.as_ref());
        Poll::Ready(self.limiter.decided(&self.policy, self.terms, decisions))
    }
}

impl Limiter {
    /// Asks for permits.
    #[inline]
    pub(super) fn decide(&self, policy: &Arc<ReadyPolicy>, question: Question) -> Reply {
        let terms = question.terms();
        let read = |decisions: &Decisions| self.decided(policy, terms, decisions);
        let (only, several);
        let checks = if policy.count_checks() == 1 {
            only = question.only_check(policy);
            std::slice::from_ref(&only)
        } else {
            several = question.checks(policy);
            &several[..]
        };
        match self.0.store.ask_and_read(checks, read) {
            Ok(decision) => Reply::Decided(decision),
            Err(answer) => Reply::Asked(Trip {
                limiter: self.clone(),
                policy: Arc::clone(policy),
                terms,
                answer,
            }),
        }
    }

    pub(super) fn ask(&self, policy: &ReadyPolicy, question: Question) -> Answer {
        self.0.store.ask(&question.checks(policy))
    }

    /// The policy's decision, as its mode has it.
    #[inline]
    pub(super) fn decided(
        &self,
        policy: &ReadyPolicy,
        terms: Terms,
        decisions: &Decisions,
    ) -> Decision {
        let mut decision = policy.decision(&mut decisions.iter());
        // Looking decides nothing.
        if terms.takes {
            if terms.mode == Mode::Shadow {
                decision = decision.in_shadow();
            }
            self.report(policy, terms.mode, terms.subject, &decision);
        }
        decision
    }
}
