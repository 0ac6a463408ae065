//! Reports decisions to the observers and the log.

use std::fmt;

use super::Limiter;
use super::rules::EarlyRejection;
use crate::decision::Decision;
use crate::error::StoreErrorKind;
use crate::key::Subject;
use crate::mode::Mode;
use crate::observer::{DecisionEvent, DecisionResult, Observer, RefusalEvent};
use crate::one_line::OneLine;
use crate::policy::{CompiledPolicy, RejectReason};
use crate::trace;

impl Limiter {
    /// Reports one policy's decision.
    pub(super) fn report(
        &self,
        policy: &CompiledPolicy,
        mode: Mode,
        subject: Subject,
        shown_subject: Option<&str>,
        decision: &Decision,
    ) {
        let event = DecisionEvent {
            policy: policy.id.name(),
            mode,
            subject,
            shown_subject,
            decision,
        };
        if !self.0.observers.are_none() {
            self.0.observers.on_decision(&event);
        }
        log(&event);
    }

    /// Reports a request that is rejected before any policy decides.
    pub(super) fn report_refusal(&self, refusal: &EarlyRejection) {
        self.report_early(refusal, Mode::Enforce);
    }

    /// Reports a request that goes on because the rejecting policy is in shadow mode.
    pub(super) fn report_shadow_refusal(&self, refusal: &EarlyRejection) {
        self.report_early(refusal, Mode::Shadow);
    }

    fn report_early(&self, refusal: &EarlyRejection, mode: Mode) {
        let event = RefusalEvent {
            policy: refusal.policy.as_deref(),
            mode,
            reason: refusal.reason.in_a_word(),
        };
        self.0.observers.on_refusal(&event);
        match &refusal.reason {
            // Not the client's fault, and it lasts until an operator acts. But clients control how
            // often it happens.
            RejectReason::Misconfigured(explanation)
                if self.0.log_throttle.try_warn(event.policy, mode) =>
            {
                warn_of_refusal(&event, explanation);
            }
            _ => log_refusal(&event),
        }
    }
}

/// Logs what an operator must fix before requests can be evaluated.
fn warn_of_refusal(event: &RefusalEvent<'_>, explanation: &str) {
    let (policy, reason) = (event.policy.unwrap_or_default(), event.reason);
    match event.mode {
        Mode::Shadow => trace::warn!(
            policy = policy,
            reason = %reason,
            explanation = %OneLine(explanation),
            "rate limiting: requests would be refused with 500, as the server does not provide what \
             the policy needs"
        ),
        _ => trace::warn!(
            policy = policy,
            reason = %reason,
            explanation = %OneLine(explanation),
            "rate limiting: requests are refused with 500, as the server does not provide what the \
             policy needs"
        ),
    }
}

/// Logs why a request was rejected. The explanation of a malformed cost is omitted, because it
/// quotes the client.
fn log_refusal(event: &RefusalEvent<'_>) {
    let (policy, reason) = (event.policy.unwrap_or_default(), event.reason);
    match event.mode {
        Mode::Shadow => trace::debug!(
            policy = policy,
            reason = %reason,
            "would have been rejected before evaluation"
        ),
        _ => trace::debug!(policy = policy, reason = %reason, "rejected before evaluation"),
    }
}

/// Logs at debug level, because denied clients control how often it happens.
fn log(event: &DecisionEvent<'_>) {
    let result = event.result();
    match result {
        DecisionResult::Denied | DecisionResult::DeniedFromMemory => {
            trace::debug!(
                policy = event.policy,
                result = %result,
                subject = %SubjectOf(event),
                retry_after_us = event.decision.retry_after.get(),
                banned = event.decision.banned_for().is_some(),
                "denied"
            );
        }
        DecisionResult::ShadowDenied => {
            trace::debug!(
                policy = event.policy,
                result = %result,
                subject = %SubjectOf(event),
                retry_after_us = event.decision.retry_after.get(),
                "would have been denied"
            );
        }
        DecisionResult::FailedClosed => {
            trace::debug!(
                policy = event.policy,
                result = %result,
                failure = failure_of(event),
                "denied because the store failed"
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
        DecisionResult::Allowed
        | DecisionResult::NearLimit
        | DecisionResult::Waited
        | DecisionResult::NotAsked => {}
    }
}

/// The key of a decision as the log shows it.
struct SubjectOf<'a>(&'a DecisionEvent<'a>);

impl fmt::Display for SubjectOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.shown_subject {
            Some(shown) => OneLine(shown).fmt(f),
            None => self.0.subject.fmt(f),
        }
    }
}

/// The label of the store's failure.
fn failure_of(event: &DecisionEvent<'_>) -> &'static str {
    let failure = event.decision.store_failure();
    failure.map_or("", StoreErrorKind::as_str)
}
