//! The endpoints: what operators can ask, and the answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::counters::Counters;
use super::origin::AllowedHosts;
use super::response::{Problem, json};
use super::state::{self, KeyReport};
use super::{page, subject};
use crate::decision::Decision;
use crate::key::Subject;
use crate::limiter::{Limiter, PolicySummary};
use crate::mode::Mode;
use crate::observers::TopDenied;
use crate::trace;

/// Far more than any question needs.
const LONGEST_BODY: usize = 16 * 1024;

/// What the endpoints work on.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) limiter: Limiter,
    pub(super) counters: Arc<Counters>,
    pub(super) top: Option<TopDenied>,
}

pub(super) fn router(api: Api, hosts: AllowedHosts) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/state", get(state))
        .route("/switch", post(switch))
        .route("/mode", post(set_mode))
        .route("/peek", post(peek))
        .route("/reset", post(reset))
        .fallback(async || {
            Problem::new(
                StatusCode::NOT_FOUND,
                "there are /, /state, /switch, /mode, /peek and /reset",
            )
        })
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "/ and /state are read with GET, the others take POST",
            )
        })
        .layer(DefaultBodyLimit::max(LONGEST_BODY))
        .layer(from_fn_with_state(hosts, guard))
        .with_state(api)
}

/// Keeps other sites' pages from pressing buttons, and answers from being stored.
///
/// A form of another site cannot send `application/json`, and a script can only after a preflight,
/// which nobody here answers. Should a layer of the application answer it, browsers still say whose
/// page it was: by `Origin` in every `POST`, and by `Sec-Fetch-Site` over TLS or to the local machine.
async fn guard(State(hosts): State<AllowedHosts>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&hosts, &request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn refusal(hosts: &AllowedHosts, request: &Request) -> Option<Problem> {
    if let Some(problem) = hosts.refuse_host(request) {
        return Some(problem);
    }
    if *request.method() != Method::POST {
        return None;
    }
    if let Some(problem) = hosts.refuse_origin(request) {
        return Some(problem);
    }
    let headers = request.headers();
    let value = |name| {
        headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap_or("?"))
    };
    if !matches!(value("sec-fetch-site"), "" | "same-origin" | "none") {
        return Some(Problem::new(
            StatusCode::FORBIDDEN,
            "sec-fetch-site: the request comes from a page of another site",
        ));
    }
    let media_type = value("content-type").split(';').next().unwrap_or_default();
    if !media_type.trim().eq_ignore_ascii_case("application/json") {
        return Some(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("content-type: got {media_type:?}, expected application/json"),
        ));
    }
    None
}

async fn state(State(api): State<Api>) -> Response {
    json(&state::State::of(
        &api.limiter,
        &api.counters,
        api.top.as_ref(),
    ))
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = r#"{"on": false}"#)]
struct Switch {
    on: bool,
}

async fn switch(
    State(api): State<Api>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let switch: Switch = read(body)?;
    match switch.on {
        true => api.limiter.turn_on(),
        false => api.limiter.turn_off(),
    }
    Ok(json(&switch))
}

#[derive(Deserialize, Serialize)]
#[serde(
    deny_unknown_fields,
    expecting = r#"{"policy": "api", "mode": "shadow"}"#
)]
struct PolicyMode {
    policy: String,
    mode: String,
}

async fn set_mode(
    State(api): State<Api>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let wanted: PolicyMode = read(body)?;
    let mode: Mode = wanted.mode.parse()?;
    api.limiter.set_mode(&wanted.policy, mode)?;
    Ok(json(&wanted))
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

async fn peek(
    State(api): State<Api>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let (policy, subject) = PolicySubject::read(&api, body)?;
    let decision = api.limiter.peek_subject(&policy.name, subject).await?;
    answered(&decision, "nothing is known of the subject")?;
    Ok(json(&KeyReport::of(&policy, subject, &decision)))
}

async fn reset(
    State(api): State<Api>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let (policy, subject) = PolicySubject::read(&api, body)?;
    // For the log alone: a reset that works is not held up by a look that fails.
    let before = api.limiter.peek_subject(&policy.name, subject).await?;
    let decision = api.limiter.reset_subject(&policy.name, subject).await?;
    answered(
        &decision,
        "it is not known whether the subject was reset, try again",
    )?;
    trace::info!(
        policy = %policy.name,
        subject = %subject,
        from = before.remaining(),
        to = decision.remaining(),
        "subject reset by an operator"
    );
    Ok(json(&KeyReport::of(&policy, subject, &decision)))
}

/// Failure modes are for requests; an operator wants to know of the failure.
fn answered(decision: &Decision, so: &str) -> Result<(), Problem> {
    let Some(why) = decision.store_failure() else {
        return Ok(());
    };
    let detail = format!("{why}: {so}");
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
}

fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Problem> {
    let body = body.map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
    serde_json::from_slice(&body).map_err(|error| Problem::bad_request(format!("body: {error}")))
}
