//! Denials further in, by a handler for a policy of its own or by another layer: the headers tell of
//! the policy that denies, and nothing in them says that a client may come back before `Retry-After`.

use axum::body::Body;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use axum::routing::any;
use tower_throttle::{Denied, FailureMode};

use super::headers::{ALL, everybody, fetch, is_silent, limiter, values};
use super::*;

/// Denies by this policy from the second request on.
fn login() -> Limiter {
    let login = Policy::new("login", Limit::sliding_log(1, 15 * MINUTE)).on(NoRequest);
    limiter([login])
}

/// Answers as axum makes it of the denial.
fn by_denial(limiter: Limiter) -> Router {
    let handler = async move || {
        let _permit = limiter.admit("login", Key::user(7)).await?;
        Ok::<_, Denied>("in")
    };
    Router::new().route("/", any(handler))
}

/// Answers with a body of its own.
fn by_builder(limiter: Limiter) -> Router {
    let handler = async move |parts: Parts| {
        let Err(denied) = limiter.admit("login", Key::user(7)).await else {
            return "in".into_response();
        };
        let request = Request::from_parts(parts, ());
        let rejection = Rejection::from(denied);
        let response = rejection.response(&RequestHead::new(&request), &PlainText);
        response.map(Body::from)
    };
    Router::new().route("/", any(handler))
}

/// The second answer.
async fn denied(app: Router) -> reqwest::Response {
    let url = serve(app).await;
    assert_eq!(fetch(&url).await.status(), 200);
    fetch(&url).await
}

fn around(headers: QuotaHeaders) -> RateLimitLayer {
    RateLimitLayer::new(limiter([everybody("client", 20)])).headers(headers)
}

const FAMILIES: [QuotaHeaders; 7] = [
    QuotaHeaders::NONE,
    QuotaHeaders::DRAFT_11,
    QuotaHeaders::DRAFT_6,
    QuotaHeaders::X_RATELIMIT_DELTA,
    QuotaHeaders::X_RATELIMIT_EPOCH,
    QuotaHeaders::DRAFT_6.and(QuotaHeaders::X_RATELIMIT_EPOCH.on_denials()),
    ALL,
];

#[tokio::test]
async fn a_handlers_denying_policy_is_in_every_header_family() {
    for headers in FAMILIES {
        for handler in [by_denial, by_builder] {
            let denied = denied(handler(login()).layer(around(headers))).await;
            assert_eq!(denied.status(), 429);
            assert_eq!(denied.headers()["retry-after"], "900");
            for name in ALL.names() {
                let is_there = denied.headers().contains_key(&name);
                assert_eq!(is_there, headers.names().contains(&name), "{name}");
            }
            if denied.headers().contains_key("ratelimit") {
                let policies = items(&denied, "ratelimit-policy", ["q", "w"]);
                let expected = [("login".to_owned(), 1, 900), ("client".to_owned(), 20, 60)];
                assert_eq!(policies, expected);
                let quotas = items(&denied, "ratelimit", ["r", "t"]);
                let expected = [("login".to_owned(), 0, 900), ("client".to_owned(), 18, 54)];
                assert_eq!(quotas, expected);
            }
            for prefix in ["ratelimit", "x-ratelimit"] {
                if let Some([limit, remaining, reset]) = values(denied.headers(), prefix) {
                    assert_eq!((limit, remaining), (1, 0));
                    assert!(reset == 900 || reset > 1_000_000_000, "{reset}");
                }
            }
        }
    }
}

#[tokio::test]
async fn headers_on_denials_only_are_there_on_a_denial_by_a_handler() {
    let url = serve(by_denial(login()).layer(around(ALL.on_denials()))).await;
    assert!(is_silent(fetch(&url).await.headers()));
    let denied = fetch(&url).await;
    let quotas = items(&denied, "ratelimit", ["r", "t"]);
    assert_eq!(quotas, [("login".to_owned(), 0, 900)]);
    assert_eq!(values(denied.headers(), "x-ratelimit"), Some([1, 0, 900]));
}

#[tokio::test]
async fn the_innermost_of_nested_layers_tells_of_it_once() {
    let app = by_denial(login()).layer(around(ALL)).layer(around(ALL));
    let denied = denied(app).await;
    let quotas = items(&denied, "ratelimit", ["r", "t"]);
    let names: Vec<_> = quotas.iter().map(|(name, _, _)| &**name).collect();
    assert_eq!(names, ["login", "client", "client"]);
    assert_eq!(values(denied.headers(), "ratelimit"), Some([1, 0, 900]));
}

#[tokio::test]
async fn a_handler_without_an_answer_from_the_store_tells_of_no_quota() {
    let login = Policy::new("login", Limit::gcra(1, MINUTE)).on(NoRequest);
    let login = login.on_store_failure(FailureMode::Deny);
    let limiter = Limiter::new(TestStore::new(Trip::Fails), [login]).expect("a valid policy");
    let url = serve(by_denial(limiter).layer(around(ALL))).await;
    let failed = fetch(&url).await;
    assert_eq!(failed.status(), 503);
    assert_eq!(failed.headers()["retry-after"], "1");
    let quotas = items(&failed, "ratelimit", ["r", "t"]);
    assert_eq!(quotas, [("client".to_owned(), 19, 57)]);
    assert_eq!(values(failed.headers(), "x-ratelimit"), None);
}

/// A policy that gives a permit in ten seconds.
fn soon() -> Policy {
    Policy::new("login", Limit::gcra(1, 10 * tower_throttle::SECOND))
}

/// Each of two requests takes one of the outer layer's two permits; the second is denied further in.
async fn denied_behind_the_last_permit(outer: Policy) -> Vec<reqwest::Response> {
    let outer = || RateLimitLayer::new(limiter([outer.clone()])).headers(ALL);
    let by_layer = hello().layer(RateLimitLayer::new(limiter([soon()])));
    let by_handler = by_denial(limiter([soon().on(NoRequest)]));
    vec![
        denied(by_layer.layer(outer())).await,
        denied(by_handler.layer(outer())).await,
    ]
}

#[tokio::test]
async fn retry_after_is_not_before_an_outer_layer_has_permits_again() {
    let outer = Policy::new("client", Limit::fixed_window(2, 60 * MINUTE));
    for denied in denied_behind_the_last_permit(outer).await {
        let quotas = items(&denied, "ratelimit", ["r", "t"]);
        let (_, left, time) = quotas.last().expect("the outer policy");
        assert_eq!((quotas.len(), left), (2, &0));
        assert_eq!(denied.headers()["retry-after"], time.to_string());
    }
    // There is one left.
    let outer = Policy::new("client", Limit::fixed_window(3, 60 * MINUTE));
    for denied in denied_behind_the_last_permit(outer).await {
        assert_eq!(denied.headers()["retry-after"], "10");
    }
}

#[tokio::test]
async fn a_permit_back_at_the_denial_causes_no_wait() {
    let outer = Policy::new("client", Limit::fixed_window(2, 60 * MINUTE));
    let outer = outer.count_if(|response| response.status != 429);
    for denied in denied_behind_the_last_permit(outer).await {
        assert_eq!(denied.headers()["retry-after"], "10");
    }
}
