//! Who is told of decisions: the observers, and the log.

use super::Limiter;
use super::judge::{Refusal, Unjudged};
use crate::decision::Decision;
use crate::key::Subject;
use crate::mode::Mode;
use crate::observe::{DecisionEvent, DecisionResult, Observer};
use crate::policy::ReadyPolicy;
use crate::trace;

impl Limiter {
    /// Tells of one policy's decision.
    pub(super) fn report(
        &self,
        policy: &ReadyPolicy,
        mode: Mode,
        subject: Subject,
        decision: &Decision,
    ) {
        let event = DecisionEvent {
            policy: policy.id.name(),
            mode,
            subject,
            decision,
        };
        if !self.0.observers.are_none() {
            self.0.observers.on_decision(&event);
        }
        log(&event);
    }

    /// Tells of a request that no policy was asked about.
    pub(super) fn report_refusal(&self, refusal: &Refusal) {
        let policy = refusal.policy.as_deref();
        let reason = refusal.reason.in_a_word();
        self.0.observers.on_refusal(policy, reason);
        match &refusal.reason {
            // Not the client's fault, and so it will be until somebody looks after it.
            Unjudged::Misconfigured(explanation) => trace::warn!(
                policy = policy.unwrap_or_default(),
                reason = %reason,
                explanation = %explanation,
                "refused without asking"
            ),
            _ => trace::debug!(
                policy = policy.unwrap_or_default(),
                reason = %reason,
                "refused without asking"
            ),
        }
    }
}

fn log(event: &DecisionEvent<'_>) {
    match event.result() {
        DecisionResult::Denied
        | DecisionResult::DeniedFromMemory
        | DecisionResult::FailedClosed => {
            trace::debug!(
                policy = event.policy,
                result = %event.result(),
                subject = %event.subject,
                retry_after_us = event.decision.retry_after.get(),
                "denied"
            );
        }
        DecisionResult::ShadowDenied => {
            trace::debug!(
                policy = event.policy,
                result = %event.result(),
                subject = %event.subject,
                "would have been denied"
            );
        }
        DecisionResult::FailedOpen => {
            trace::debug!(
                policy = event.policy,
                result = %event.result(),
                "let through uncounted"
            );
        }
        DecisionResult::Allowed
        | DecisionResult::NearLimit
        | DecisionResult::Waited
        | DecisionResult::NotAsked => {}
    }
}
