//! Clients that obey: tonic's and hyper's, in front of servers that this crate limits.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::{ErrorDetails, StatusExt};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{
    Feedback, Limit, Limiter, MemoryStore, Policy, QuotaHeaders, RateLimitLayer, ResponseHead,
    SECOND, ThrottleLayer,
};

use crate::stage::{Counted, connect, serve};

/// One request a second.
fn upstream() -> RateLimitLayer {
    let policy = Policy::new("upstream", Limit::gcra(1, SECOND));
    RateLimitLayer::new(Limiter::new(MemoryStore::new(), [policy]).unwrap())
}

/// Far more than the upstream allows, until that says so.
fn obedient() -> ThrottleLayer<Feedback> {
    let policy = Policy::new("partner", Limit::gcra(1_000_000, SECOND));
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    ThrottleLayer::new(limiter, "partner")
        .unwrap()
        .feedback(Feedback::http())
}

#[tokio::test]
async fn a_tonic_client_comes_back_when_it_was_told_to() {
    let address = serve(upstream(), Counted::default()).await;
    let mut client = HealthClient::new(obedient().layer(connect(address).await));
    let check = HealthCheckRequest::default;
    client.check(check()).await.unwrap();
    let denied = client.check(check()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    client.check(check()).await.unwrap();
}

/// As a method that returns the error itself sends it: all in the head.
#[test]
fn the_retry_info_of_a_refused_call_is_read() {
    let delay = Duration::from_millis(700);
    for (code, expected) in [
        (Code::Unavailable, Some(delay)),
        (Code::ResourceExhausted, Some(delay)),
        // The call may be tried again then; nobody else is asked to wait.
        (Code::Aborted, None),
    ] {
        let details = ErrorDetails::with_retry_info(Some(delay));
        let status = Status::with_error_details(code, "later", details);
        let response = status.into_http::<Body>();
        let announced = Feedback::announced(&ResponseHead::new(&response));
        assert_eq!(announced, expected, "{code:?}");
    }
}

#[tokio::test]
async fn a_hyper_client_comes_back_when_it_was_told_to() {
    for headers in [
        QuotaHeaders::NONE,
        QuotaHeaders::DRAFT_11,
        QuotaHeaders::DRAFT_6,
        QuotaHeaders::X_RATELIMIT_DELTA,
        QuotaHeaders::X_RATELIMIT_EPOCH,
    ] {
        let app = axum::Router::new()
            .route("/", axum::routing::get(|| async { "hello" }))
            .layer(upstream().headers(headers));
        let url: http::Uri = support::web::serve(app).await.parse().unwrap();
        let inner = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let mut client = obedient().layer(inner);
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let request = http::Request::get(url.clone()).body(Empty::new()).unwrap();
            let response = client.ready().await.unwrap().call(request).await.unwrap();
            statuses.push(response.status().as_u16());
        }
        assert_eq!(statuses, [200, 429, 200], "{headers:?}");
    }
}
