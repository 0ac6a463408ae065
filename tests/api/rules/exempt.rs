//! Requests that are left alone.

use axum::Router;
use axum::http::StatusCode;
use tower::Layer as _;
use tower_throttle::{
    ClientAddr, ConfigError, Limiter, MemoryStore, RateLimitLayer, RequestHead, RequestMatcher,
    Route, Rules,
};

use super::{App, one_a_minute};

fn exempting(requests: impl RequestMatcher) -> Limiter {
    Limiter::new(
        MemoryStore::new(),
        Rules::new([one_a_minute("api")]).exempt(requests),
    )
    .unwrap()
}

#[tokio::test]
async fn an_exempt_route_is_never_limited_and_counts_nothing() {
    let limiter = exempting(Route::get("/health"));
    let app = App::behind(&limiter).await;
    let alice = &[("x-user", "alice")];
    for _ in 0..3 {
        let response = app.get("/health", alice).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(!response.headers().contains_key("ratelimit"));
    }
    assert_eq!(app.status("alice").await, StatusCode::OK);
    assert_eq!(app.status("alice").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(app.get("/health", alice).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_closure_exempts_requests_too() {
    let limiter = exempting(|request: &RequestHead<'_>| request.headers.contains_key("x-probe"));
    let app = App::behind(&limiter).await;
    for _ in 0..3 {
        let response = app.get("/", &[("x-user", "alice"), ("x-probe", "1")]).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(app.status("alice").await, StatusCode::OK);
    assert_eq!(app.status("alice").await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_nested_router_exempts_by_its_own_and_by_whole_paths() {
    fn inner() -> Router {
        Router::new().fallback(async || "hello")
    }
    let as_router = |layer: RateLimitLayer| Router::new().nest("/up", inner().layer(layer));
    let as_service =
        |layer: RateLimitLayer| Router::new().nest_service("/up", layer.layer(inner()));
    for pattern in ["/health", "/up/health"] {
        for nested in [as_router as fn(_) -> _, as_service] {
            let limiter = exempting(Route::get(pattern));
            let app = App::at(support::web::serve(nested(RateLimitLayer::new(limiter))).await);
            let alice = &[("x-user", "alice")];
            for _ in 0..3 {
                let response = app.get("/up/health", alice).await;
                assert_eq!(response.status(), StatusCode::OK, "{pattern}");
            }
            assert_eq!(app.get("/up/a", alice).await.status(), StatusCode::OK);
            let denied = app.get("/up/a", alice).await;
            assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        }
    }
}

#[test]
fn a_route_that_makes_no_sense_is_refused() {
    let built = Limiter::new(
        MemoryStore::new(),
        Rules::new([one_a_minute("api")]).exempt(Route::get("health")),
    );
    let error = built.unwrap_err();
    assert!(matches!(error, ConfigError::Malformed { .. }), "{error}");
}

#[test]
fn a_range_that_makes_no_sense_is_refused() {
    let client = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    let error = tower_throttle::AccessList::new()
        .addresses(client, ["203.0.113.0/33"])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "addresses: got \"203.0.113.0/33\": expected a range such as 10.0.0.0/8 or 2001:db8::/32, \
         or one address"
    );
}
