//! `Reply`: what one policy decides, which may take a trip to the store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Limiter, answered};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::key::Subject;
use crate::mode::Mode;
use crate::policy::ReadyPolicy;
use crate::store::{Answer, Check, PendingAnswer};

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
    question: Question,
    answer: PendingAnswer,
}

/// What a policy is asked about one subject.
#[derive(Clone, Copy)]
pub(super) struct Question {
    pub(super) subject: Subject,
    pub(super) action: Action,
    pub(super) mode: Mode,
}

impl Trip {
    pub(super) async fn decision(self) -> Decision {
        let answer = self.answer.await;
        let answer = answered(answer.as_ref());
        self.limiter.decided(&self.policy, &self.question, answer)
    }
}

impl Limiter {
    /// Asks for permits.
    pub(super) fn decide(&self, policy: &Arc<ReadyPolicy>, question: Question) -> Reply {
        match self.ask(policy, &question) {
            // Looked at where it is: moving it would copy room for several decisions.
            Answer::Ready(ref answer) => {
                Reply::Decided(self.decided(policy, &question, answered(answer.as_ref())))
            }
            Answer::Pending(answer) => Reply::Asked(Trip {
                limiter: self.clone(),
                policy: Arc::clone(policy),
                question,
                answer,
            }),
        }
    }

    pub(super) fn ask(&self, policy: &ReadyPolicy, question: &Question) -> Answer {
        let Question {
            subject,
            action,
            mode,
        } = *question;
        if policy.count_checks() == 1 {
            let is_shadow = mode == Mode::Shadow;
            let only = policy.check(0, subject, policy.algorithm, action, is_shadow);
            return self.0.store.ask(&[only]);
        }
        let judges = policy.judges();
        let checks = policy.checks(subject, &judges, action, mode);
        self.0
            .store
            .ask(&checks.collect::<SmallVec<[Check<'_>; 4]>>())
    }

    /// The policy's decision, as its mode has it.
    pub(super) fn decided(
        &self,
        policy: &ReadyPolicy,
        question: &Question,
        decisions: &Decisions,
    ) -> Decision {
        let mut decision = policy.decision(&mut decisions.iter());
        // Looking decides nothing.
        if question.action.takes() > 0 {
            if question.mode == Mode::Shadow {
                decision = decision.in_shadow();
            }
            self.report(policy, question.mode, question.subject, &decision);
        }
        decision
    }
}
