//! The response to a denial: its headers, its body and the answer over gRPC agree with the decisions.

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Status;
use tonic_types::StatusExt as _;
use tower_throttle::{Decision, Outcome};

use super::request::{Asked, secs, us};
use super::stage::Response;

pub(crate) fn check_answers(asked: &Asked<'_>) {
    over_http(asked);
    if asked.are_alike {
        over_grpc(asked);
    }
}

fn over_http(asked: &Asked<'_>) {
    let response = &asked.response;
    let denying = asked.events.iter().map(|event| &event.decision);
    let denying = denying.filter(|decision| !decision.is_allowed());
    assert_eq!(denying.clone().count() == 0, response.status == 200);
    let Some(rejection) = &response.rejection else {
        return assert_eq!(response.status, 200);
    };
    let names = denying_names(asked);
    assert_eq!(rejection.policies(), names);
    let mut outcomes = denying.clone().map(Decision::outcome);
    let never_fits = outcomes.any(|outcome| outcome == Outcome::NeverFits);
    let waits = denying.map(|decision| decision.retry_after().unwrap_or_default());
    let longest = waits.max().filter(|_| !never_fits);
    assert_eq!(rejection.retry_after(), longest);
    let in_secs = longest.map(|wait| secs(wait).max(1));
    assert_eq!(rejection.retry_after_secs(), in_secs);
    assert_eq!(response.number("retry-after"), in_secs);
    let problem: Value = serde_json::from_slice(&response.body).unwrap();
    let in_body = problem.get("retry-after-secs").and_then(Value::as_u64);
    assert_eq!(in_body, in_secs);
    assert_eq!(problem["violated-policies"], json!(names));
}

fn over_grpc(asked: &Asked<'_>) {
    let (response, call) = (&asked.response, &asked.over_grpc);
    for header in ["ratelimit", "ratelimit-policy"] {
        assert_eq!(call.text(header), response.text(header));
    }
    assert_eq!(call.is_denied_over_grpc(), asked.is_denied());
    let Some(rejection) = &response.rejection else {
        return;
    };
    let wait = rejection.retry_after();
    assert_eq!((call.status, call.text("grpc-status")), (200, Some("8")));
    assert_eq!(retry_delay(call), wait);
    let failure = status(call).get_details_quota_failure().unwrap();
    let violations = failure.violations.iter();
    let ids: Vec<_> = violations.map(|each| &*each.quota_id).collect();
    assert_eq!(ids, denying_names(asked));
    let pushback = call.text("grpc-retry-pushback-ms").unwrap();
    let pushback: i64 = pushback.parse().unwrap();
    match wait.filter(|wait| *wait <= Duration::from_secs(10)) {
        Some(wait) => assert!(pushback >= us(wait).div_ceil(1_000) as i64),
        None => assert_eq!(pushback, -1),
    }
}

fn denying_names<'a>(asked: &'a Asked<'_>) -> Vec<&'a str> {
    let events = asked.events.iter();
    let denying = events.filter(|event| !event.decision.is_allowed());
    denying.map(|event| &*event.policy).collect()
}

/// The retry delay of a denied call.
pub(crate) fn retry_delay(response: &Response) -> Option<Duration> {
    status(response).get_details_retry_info()?.retry_delay
}

fn status(response: &Response) -> Status {
    Status::from_header_map(&response.headers).unwrap()
}
