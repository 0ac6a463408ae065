//! What a subject has left: the endpoints that look at it and reset it.

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::api::{Actor, Api, read};
use super::response::{Problem, json, millis};
use super::subject;
use crate::decision::Decision;
use crate::error::StoreErrorKind;
use crate::key::Subject;
use crate::limiter::PolicySummary;
use crate::trace;

/// What a subject has left of a policy.
#[derive(Serialize)]
struct KeyReport {
    policy: String,
    /// As in stored keys and logs.
    subject: String,
    /// The capacity, and what is left of it now.
    capacity: u64,
    remaining: u64,
    /// How long until it is as if the subject had never asked.
    reset_after_ms: u64,
    banned_for_ms: Option<u64>,
}

impl KeyReport {
    fn of(policy: &PolicySummary, subject: Subject, decision: &Decision) -> Self {
        Self {
            policy: policy.name.clone(),
            subject: subject.to_string(),
            capacity: policy.capacity,
            remaining: decision.remaining(),
            reset_after_ms: millis(decision.reset_after()),
            banned_for_ms: decision.banned_for().map(millis),
        }
    }
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = r#"{"policy": "api", "subject": {"address": "203.0.113.9"}}"#
)]
struct PolicySubject {
    policy: String,
    subject: Value,
}

impl PolicySubject {
    fn read(
        api: &Api,
        body: Result<Bytes, BytesRejection>,
    ) -> Result<(PolicySummary, Subject), Problem> {
        let asked: Self = read(body)?;
        // The policy first: if it does not exist, an error about the subject helps nobody.
        let policy = api.limiter.summary(&asked.policy)?;
        let subject = subject::read(&api.limiter, &policy, asked.subject)?;
        Ok((policy, subject))
    }
}

pub(super) async fn peek(
    State(api): State<Api>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let (policy, subject) = PolicySubject::read(&api, body)?;
    let decision = api.limiter.peek_subject(&policy.name, subject).await?;
    answered(&decision, |_| "nothing is known of the subject")?;
    Ok(json(&KeyReport::of(&policy, subject, &decision)))
}

pub(super) async fn reset(
    State(api): State<Api>,
    Actor(by): Actor,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let (policy, subject) = PolicySubject::read(&api, body)?;
    // For the logs alone: a reset that works is not held up by a look that fails.
    let before = api.limiter.peek_subject(&policy.name, subject).await?;
    let decision = api.limiter.reset_subject(&policy.name, subject).await?;
    answered(&decision, |why| match why {
        // The store was not asked.
        StoreErrorKind::BreakerOpen | StoreErrorKind::Overloaded => {
            "the subject was not reset, try again"
        }
        _ => "it is not known whether the subject was reset, try again",
    })?;
    trace::info!(
        policy = %policy.name,
        subject = %subject,
        from = before.remaining(),
        to = decision.remaining(),
        "subject reset by an operator"
    );
    let left = |decision: &Decision| {
        let ban = decision.banned_for().map_or("", |_| ", banned");
        format!("{} left{ban}", decision.remaining())
    };
    api.audit.note(
        by,
        "reset",
        Some(format!("{}: {subject}", policy.name)),
        [left(&before), left(&decision)],
    );
    Ok(json(&KeyReport::of(&policy, subject, &decision)))
}

/// Failure modes are for requests; an operator wants to know of the failure.
fn answered(
    decision: &Decision,
    so: impl FnOnce(StoreErrorKind) -> &'static str,
) -> Result<(), Problem> {
    let Some(why) = decision.store_failure() else {
        return Ok(());
    };
    let detail = format!("{why}: {}", so(why));
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
}
