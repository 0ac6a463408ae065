//! The layer as a tower service: readiness, errors, clones, cancellation.

use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use tower::buffer::BufferLayer;
use tower::limit::{ConcurrencyLimit, ConcurrencyLimitLayer};
use tower::load_shed::LoadShedLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_throttle::{
    CostError, CostExtractor, FailureMode, Key, KeyError, KeyExtractor, Limit, Limiter, MINUTE,
    OnMissingKey, Policy, RateLimit, RateLimitLayer, Rejection, RejectionKind, RequestHead,
    ResponseFuture, SECOND, StoreErrorKind, Wrapped,
};

use support::http_store::{TRIPS, TestStore, Trip};

type Body = Full<Bytes>;

fn request() -> Request<Body> {
    Request::new(Body::default())
}

fn layer(trip: Trip, permits: u64) -> RateLimitLayer<Wrapped> {
    RateLimitLayer::new(TestStore::new(trip).limiter(Limit::gcra(permits, MINUTE))).wrap_body()
}

fn rejection<B>(response: &Response<B>) -> Option<Rejection> {
    response.extensions().get().cloned()
}

/// Answers 200, counts its calls, and panics if an instance is called that was not polled ready.
#[derive(Debug, Default)]
struct Strict {
    is_ready: bool,
    calls: Arc<AtomicUsize>,
}

impl Strict {
    fn calls(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.calls)
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            is_ready: false,
            calls: self.calls(),
        }
    }
}

impl Service<Request<Body>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(self.is_ready, "called without being ready");
        self.is_ready = false;
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Response::default()))
    }
}

async fn status<S, B>(service: &mut S) -> StatusCode
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: std::fmt::Debug,
{
    let service = service.ready().await.expect("ready");
    service.call(request()).await.expect("a response").status()
}

#[tokio::test]
async fn the_instance_that_was_polled_ready_is_called() {
    for trip in TRIPS {
        let inner = Strict::default();
        let calls = inner.calls();
        let mut service = layer(trip, 3).layer(inner);
        for _ in 0..3 {
            assert_eq!(status(&mut service).await, 200, "{trip:?}");
        }
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn denied_request_never_reaches_inner() {
    for trip in TRIPS {
        let inner = Strict::default();
        let calls = inner.calls();
        let mut service = layer(trip, 2).layer(inner);
        for expected in [200, 200, 429, 429] {
            assert_eq!(status(&mut service).await, expected, "{trip:?}");
        }
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn inner_errors_pass_unchanged() {
    #[derive(Debug, PartialEq)]
    struct Broken(u64);

    for trip in TRIPS {
        let inner = service_fn(|_: Request<Body>| ready(Err::<Response<Body>, _>(Broken(7))));
        let service = layer(trip, 1).layer(inner);
        assert_eq!(service.oneshot(request()).await.unwrap_err(), Broken(7));
    }
}

#[tokio::test]
async fn clones_and_services_of_one_layer_share_the_limit() {
    for trip in TRIPS {
        let layer = layer(trip, 3);
        let mut first = layer.layer(Strict::default());
        let mut clone = first.clone();
        let mut second = layer.clone().layer(Strict::default());
        assert_eq!(status(&mut first).await, 200);
        assert_eq!(status(&mut clone).await, 200);
        assert_eq!(status(&mut second).await, 200);
        assert_eq!(status(&mut first).await, 429);
        assert_eq!(status(&mut second).await, 429);
    }
}

#[tokio::test]
async fn a_denied_request_gives_the_place_it_held_back() {
    for trip in TRIPS {
        let places = ConcurrencyLimitLayer::new(1).layer(Strict::default());
        let mut beside = places.clone();
        let mut service = layer(trip, 1).layer(places);
        for expected in [200, 429, 429] {
            assert_eq!(status(&mut service).await, expected);
        }
        assert_is_free(&mut beside, trip);
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_judged_gives_the_place_it_held_back() {
    let policy = Policy::new("user", Limit::gcra(1, MINUTE))
        .by(|_: &RequestHead<'_>| None::<Key>)
        .on_missing_key(OnMissingKey::Reject);
    let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("a valid policy");
    let places = ConcurrencyLimitLayer::new(1).layer(Strict::default());
    let mut beside = places.clone();
    let mut service = RateLimitLayer::new(limiter).wrap_body().layer(places);
    assert_eq!(status(&mut service).await, 400);
    assert_is_free(&mut beside, Trip::None);
}

/// A clone can have the only place while the service that held it still exists.
fn assert_is_free(beside: &mut ConcurrencyLimit<Strict>, trip: Trip) {
    let polled = beside.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready(), "{trip:?}");
}

#[tokio::test]
async fn the_layer_respects_services_that_count_readiness() {
    for trip in TRIPS {
        let mut service = ServiceBuilder::new()
            .layer(layer(trip, 2))
            .layer(LoadShedLayer::new())
            .layer(BufferLayer::new(1))
            .layer(ConcurrencyLimitLayer::new(1))
            .service(Strict::default());
        for expected in [200, 200, 429] {
            assert_eq!(status(&mut service).await, expected, "{trip:?}");
        }
    }
}

#[tokio::test]
async fn readiness_is_that_of_the_inner_service() {
    #[derive(Clone)]
    struct Moody(Poll<Result<(), &'static str>>);

    impl Service<Request<Body>> for Moody {
        type Response = Response<Body>;
        type Error = &'static str;
        type Future = Ready<Result<Response<Body>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            self.0
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            ready(Ok(Response::default()))
        }
    }

    let cx = &mut Context::from_waker(Waker::noop());
    for mood in [Poll::Pending, Poll::Ready(Ok(())), Poll::Ready(Err("ill"))] {
        let mut service = layer(Trip::None, 1).layer(Moody(mood));
        assert_eq!(service.poll_ready(cx), mood);
    }
}

#[tokio::test]
async fn a_request_dropped_before_the_answer_counts_and_calls_nothing() {
    let store = TestStore::new(Trip::Short);
    let inner = Strict::default();
    let calls = inner.calls();
    let mut service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(store.limiter(Limit::gcra(2, MINUTE))).wrap_body())
        .layer(ConcurrencyLimitLayer::new(1))
        .service(inner);
    {
        let mut dropped = pin!(service.ready().await.expect("ready").call(request()));
        assert!(futures_util::poll!(dropped.as_mut()).is_pending());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    // Its place is not lost. Its question goes on.
    assert_eq!(status(&mut service).await, 200);
    assert_eq!(status(&mut service).await, 429);
    assert_eq!((store.decided(), calls.load(Ordering::SeqCst)), (3, 1));
}

#[tokio::test]
async fn a_request_dropped_in_the_service_drops_what_that_holds() {
    for trip in TRIPS {
        let held = Arc::new(());
        let inner = service_fn(|_: Request<Body>| {
            let held = Arc::clone(&held);
            async move {
                let _held = held;
                pending::<Result<Response<Body>, Infallible>>().await
            }
        });
        let mut service = layer(trip, 1).layer(inner);
        {
            let mut response = pin!(service.ready().await.expect("ready").call(request()));
            // Twice: the answer may take a round trip.
            for _ in 0..2 {
                assert!(futures_util::poll!(response.as_mut()).is_pending());
            }
            assert_eq!(Arc::strong_count(&held), 2, "{trip:?}");
        }
        assert_eq!(Arc::strong_count(&held), 1, "{trip:?}");
    }
}

/// The answer of a policy for everybody with this failure mode, over a store that is down.
async fn over_a_failing_store(trip: Trip, mode: FailureMode) -> Response<()> {
    let policy = Policy::new("api", Limit::gcra(1, MINUTE)).on_store_failure(mode);
    over(trip, policy).await
}

#[tokio::test]
async fn a_policy_that_fails_closed_answers_503_without_quota_headers() {
    for trip in [Trip::Fails, Trip::FailsLate] {
        let response = over_a_failing_store(trip, FailureMode::Deny).await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
        assert!(!response.headers().contains_key("ratelimit"));
        assert_eq!(
            rejection(&response).expect("a reason").kind(),
            RejectionKind::StoreFailed(StoreErrorKind::Unreachable)
        );
    }
}

#[tokio::test]
async fn a_policy_that_fails_open_lets_pass_without_quota_headers() {
    for trip in [Trip::Fails, Trip::FailsLate] {
        let response = over_a_failing_store(trip, FailureMode::Allow).await;
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("ratelimit"));
        assert_eq!(rejection(&response), None);
    }
}

/// The layer's answer when only this policy applies.
async fn under(policy: Policy) -> Response<()> {
    over(Trip::None, policy).await
}

/// The same, when the store answers in this way.
async fn over(trip: Trip, policy: Policy) -> Response<()> {
    let limiter = Limiter::new(TestStore::new(trip), [policy]).expect("a valid policy");
    let service = RateLimitLayer::new(limiter)
        .wrap_body()
        .layer(Strict::default());
    service
        .oneshot(request())
        .await
        .expect("a response")
        .map(drop)
}

#[tokio::test]
async fn a_request_without_its_required_key_gets_400() {
    let policy = Policy::new("user", Limit::gcra(1, MINUTE))
        .by(|_: &RequestHead<'_>| None::<Key>)
        .on_missing_key(OnMissingKey::Reject);
    let response = under(policy).await;
    assert_eq!(response.status(), 400);
    let reason = rejection(&response).expect("a reason");
    assert_eq!(reason.kind(), RejectionKind::MissingKey);
    assert_eq!(reason.policies(), ["user"]);
    assert_eq!(reason.retry_after(), None);
}

#[tokio::test]
async fn unreadable_costs_get_400_with_the_extractors_text() {
    struct Unreadable;

    impl CostExtractor for Unreadable {
        fn cost(&self, _: &RequestHead<'_>) -> Result<u64, CostError> {
            Err(CostError::new("x-cost: expected a whole number"))
        }
    }

    let response = under(Policy::new("api", Limit::gcra(1, MINUTE)).cost_by(Unreadable)).await;
    assert_eq!(response.status(), 400);
    let reason = rejection(&response).expect("a reason");
    assert_eq!(
        reason.to_string(),
        "policy \"api\": x-cost: expected a whole number"
    );
}

#[tokio::test]
async fn a_server_that_lacks_what_a_key_needs_gets_500() {
    struct Lacking;

    impl KeyExtractor for Lacking {
        fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
            Err(KeyError::Misconfigured("serve with ConnectInfo".into()))
        }
    }

    let response = under(Policy::new("peer", Limit::gcra(1, MINUTE)).by(Lacking)).await;
    assert_eq!(response.status(), 500);
    let reason = rejection(&response).expect("a reason");
    assert_eq!(reason.kind(), RejectionKind::Misconfigured);
    assert_eq!(
        reason.to_string(),
        "policy \"peer\": serve with ConnectInfo"
    );
}

#[tokio::test]
async fn a_cost_that_never_fits_gets_429_and_no_time_to_come_back() {
    let six = |_: &RequestHead<'_>| 6;
    let response = under(Policy::new("api", Limit::gcra(5, MINUTE)).cost_by(six)).await;
    assert_eq!(response.status(), 429);
    assert!(!response.headers().contains_key("retry-after"));
    let reason = rejection(&response).expect("a reason");
    assert_eq!(reason.kind(), RejectionKind::NeverFits);
}

#[tokio::test]
async fn rejections_name_all_denying_policies_and_the_longest_wait() {
    let limiter = Limiter::new(
        TestStore::new(Trip::Short),
        [
            Policy::new("minute", Limit::gcra(1, MINUTE)),
            Policy::new("wide", Limit::gcra(100, MINUTE)),
            Policy::new("hour", Limit::fixed_window(1, 60 * MINUTE)),
        ],
    )
    .expect("sound policies");
    let mut service = RateLimitLayer::new(limiter)
        .wrap_body()
        .layer(Strict::default());
    assert_eq!(status(&mut service).await, 200);
    let response = service.oneshot(request()).await.expect("a response");
    assert_eq!(response.headers()["retry-after"], "3600");
    let reason = rejection(&response).expect("a reason");
    assert_eq!(reason.policies(), ["minute", "hour"]);
    assert_eq!(reason.retry_after(), Some(60 * MINUTE));
    assert_eq!(
        response.headers()["ratelimit"],
        r#""minute";r=0;t=60, "wide";r=99;t=60, "hour";r=0;t=3600"#
    );
}

/// Dear requests cost this much, others 1.
fn if_dear(cost: u64) -> impl Fn(&RequestHead<'_>) -> u64 {
    move |request| match request.headers.contains_key("x-dear") {
        true => cost,
        false => 1,
    }
}

fn dear() -> Request<Body> {
    let mut dear = request();
    let yes = http::HeaderValue::from_static("yes");
    dear.headers_mut().insert("x-dear", yes);
    dear
}

/// It would be denied then, too.
#[tokio::test]
async fn a_cost_that_never_fits_has_no_reset_beside_a_used_up_quota() {
    let used = || Policy::new("used", Limit::gcra(1, MINUTE));
    let small = || Policy::new("small", Limit::gcra(5, MINUTE)).cost_by(if_dear(6));
    for policies in [[used(), small()], [small(), used()]] {
        let limiter = Limiter::new(TestStore::new(Trip::None), policies).expect("sound policies");
        let mut service = RateLimitLayer::new(limiter)
            .wrap_body()
            .layer(Strict::default());
        assert_eq!(status(&mut service).await, 200);
        let response = service.oneshot(dear()).await.expect("a response");
        assert_eq!(response.status(), 429);
        assert!(!response.headers().contains_key("retry-after"));
        let reason = rejection(&response).expect("a reason");
        assert_eq!(reason.kind(), RejectionKind::NeverFits);
        assert_eq!(reason.policies().len(), 2);
        assert_eq!(reason.retry_after(), None);
        assert_eq!(reason.retry_after_secs(), None);
    }
}

#[tokio::test]
async fn retry_after_is_not_before_the_t_of_any_policy_that_denies() {
    let limiter = Limiter::new(
        TestStore::new(Trip::None),
        [
            // The second request lacks one permit, which takes 6 s; the nine that are left would
            // last for 54 s.
            Policy::new("slow", Limit::gcra(10, MINUTE)).cost_by(if_dear(10)),
            Policy::new("empty", Limit::gcra(1, 7 * SECOND)),
        ],
    )
    .expect("sound policies");
    let mut service = RateLimitLayer::new(limiter)
        .wrap_body()
        .layer(Strict::default());
    assert_eq!(status(&mut service).await, 200);
    let response = service.oneshot(dear()).await.expect("a response");
    assert_eq!(
        response.headers()["ratelimit"],
        r#""slow";r=9;t=6, "empty";r=0;t=7"#
    );
    assert_eq!(response.headers()["retry-after"], "7");
    let reason = rejection(&response).expect("a reason");
    assert_eq!(reason.retry_after(), Some(7 * SECOND));
}

/// Layer, service and future can be named without parameters for key, store or policy.
#[allow(dead_code)]
struct Named {
    limiter: Limiter,
    layer: RateLimitLayer,
    service: RateLimit<Strict>,
    future: Option<ResponseFuture<Strict, Body>>,
}

#[test]
fn the_service_inside_is_the_one_that_is_called() {
    let inner = Strict::default();
    let calls = inner.calls();
    let mut service = layer(Trip::None, 10).layer(inner);
    assert!(Arc::ptr_eq(&service.get_ref().calls, &calls));
    service.get_mut().is_ready = true;
    let inner = service.into_inner();
    assert!(inner.is_ready && Arc::ptr_eq(&inner.calls, &calls));
}

#[test]
fn all_types_can_be_sent_shared_and_cloned() {
    fn plain<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    fn sent<T: Send + 'static>() {}

    plain::<RateLimitLayer>();
    plain::<RateLimit<Strict>>();
    plain::<Rejection>();
    sent::<Named>();
}
