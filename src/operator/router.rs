//! The endpoints: what operators can ask, and the answers.

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::api::{Actor, Api, read};
use super::origin::AllowedHosts;
use super::response::{Problem, json};
use super::{blocks, page, quota, state};
use crate::mode::{Mode, Percent};

/// Far more than any question needs.
const LONGEST_BODY: usize = 16 * 1024;

pub(super) fn router(api: Api, hosts: AllowedHosts) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/state", get(state))
        .route("/switch", post(switch))
        .route("/mode", post(set_mode))
        .route("/peek", post(quota::peek))
        .route("/reset", post(quota::reset))
        .route("/block", post(blocks::block))
        .route("/unblock", post(blocks::unblock))
        .fallback(async || {
            Problem::new(
                StatusCode::NOT_FOUND,
                "there are /, /state, /switch, /mode, /peek, /reset, /block and /unblock",
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
    json(&state::State::of(&api))
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = r#"{"on": false}"#)]
struct Switch {
    on: bool,
}

async fn switch(
    State(api): State<Api>,
    Actor(by): Actor,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let switch: Switch = read(body)?;
    let word = |on| if on { "on" } else { "off" }.to_owned();
    let was_on = api.limiter.is_on();
    match switch.on {
        true => api.limiter.turn_on(),
        false => api.limiter.turn_off(),
    }
    let values = [was_on, switch.on].map(word);
    api.audit.note(by, "switch", None, values);
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
    /// The share of the subjects for whom it is enforced, as `"5%"`; unchanged by default. Answers
    /// always have it.
    enforce: Option<String>,
}

async fn set_mode(
    State(api): State<Api>,
    Actor(by): Actor,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let mut wanted: PolicyMode = read(body)?;
    let mode: Mode = wanted.mode.parse()?;
    let before = api.limiter.summary(&wanted.policy)?;
    let share = wanted.enforce.as_deref().map(str::parse).transpose()?;
    let share: Percent = share.unwrap_or(before.enforced_for);
    api.limiter.set_mode(&wanted.policy, mode)?;
    api.limiter.set_enforced_for(&wanted.policy, share)?;
    wanted.enforce = Some(share.to_string());
    let values = [(before.mode, before.enforced_for), (mode, share)].map(in_a_word);
    api.audit
        .note(by, "mode", Some(wanted.policy.clone()), values);
    Ok(json(&wanted))
}

/// `enforce 5%`; a share of all goes without saying.
fn in_a_word((mode, share): (Mode, Percent)) -> String {
    match mode {
        Mode::Enforce if share != Percent::ALL => format!("{mode} {share}"),
        mode => mode.as_str().to_owned(),
    }
}
