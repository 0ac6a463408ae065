//! Who is told of decisions: the observers, and the log.

use super::Limiter;
use super::judge::{Refusal, Unjudged};
use crate::decision::Decision;
use crate::error::StoreErrorKind;
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
        let policy = policy.unwrap_or_default();
        match &refusal.reason {
            // The server's own fault, and every such request's until it is mended.
            Unjudged::Misconfigured(why) => {
                trace::warn!(policy = policy, reason = %reason, why = %why, "refused without asking");
            }
            // Why a cost cannot be read is left out: it may say what the request said.
            Unjudged::Listed | Unjudged::NoKey | Unjudged::BadCost(_) => {
                trace::debug!(policy = policy, reason = %reason, "refused without asking");
            }
        }
    }
}

/// Tells the log, on the level of debugging: whoever is denied decides how often that is.
fn log(event: &DecisionEvent<'_>) {
    let result = event.result();
    match result {
        DecisionResult::Denied | DecisionResult::DeniedFromMemory => {
            trace::debug!(
                policy = event.policy,
                result = %result,
                subject = %event.subject,
                retry_after_us = event.decision.retry_after.get(),
                banned = event.decision.banned_for().is_some(),
                "denied"
            );
        }
        DecisionResult::ShadowDenied => {
            trace::debug!(
                policy = event.policy,
                result = %result,
                subject = %event.subject,
                retry_after_us = event.decision.retry_after.get(),
                "would have been denied"
            );
        }
        DecisionResult::FailedClosed => {
            trace::debug!(
                policy = event.policy,
                result = %result,
                failure = failure_of(event),
                "refused for want of an answer"
            );
        }
        DecisionResult::FailedOpen => {
            trace::debug!(
                policy = event.policy,
                result = %result,
                failure = failure_of(event),
                "let through uncounted"
            );
        }
        DecisionResult::Allowed | DecisionResult::NearLimit | DecisionResult::Waited => {}
    }
}

/// The kind of the store's failure, in a word.
fn failure_of(event: &DecisionEvent<'_>) -> &'static str {
    let failure = event.decision.store_failure();
    failure.map_or("", StoreErrorKind::as_str)
}
