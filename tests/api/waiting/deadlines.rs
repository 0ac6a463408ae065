//! The layer: gRPC calls with a deadline are held up for no longer than that.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{DenyCache, Store};
use tower_throttle::{Key, Limit, Limiter, MINUTE, Policy, RateLimitLayer, SECOND, per_second};

use support::virtual_time::{self, ms, timed};

/// Sends requests through the layer, each with a deadline if it has one.
struct Client(Limiter);

impl Client {
    /// One a second gets through; the first one has.
    async fn new(store: impl Store, policy: Policy) -> Self {
        let client = Self(Limiter::new(store, [policy]).unwrap());
        assert_eq!(client.send(None).await, (200, Duration::ZERO));
        client
    }

    /// The status, and how long that took.
    async fn send(&self, deadline: Option<&str>) -> (u16, Duration) {
        let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
        let service = RateLimitLayer::new(self.0.clone()).wrap_body().layer(inner);
        let mut request = Request::builder();
        if let Some(deadline) = deadline {
            request = request.header("grpc-timeout", deadline);
        }
        let (response, took) = timed(service.oneshot(request.body(()).unwrap())).await;
        (response.unwrap().status().as_u16(), took)
    }

    async fn wait_of_next(&self) -> Duration {
        let peeked = self.0.peek("api", Key::everybody()).await.unwrap();
        peeked.reset_after()
    }
}

/// All limits that can delay requests.
fn every_limit() -> [Policy; 4] {
    let named = |limit| Policy::new("api", limit);
    [
        named(Limit::gcra(1, SECOND)).max_wait(MINUTE),
        named(Limit::token_bucket(1, per_second(1))).max_wait(MINUTE),
        named(Limit::leaky_bucket(10, per_second(1))),
        named(Limit::leaky_bucket(10, per_second(1))).max_wait(MINUTE),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_the_deadline_denies_and_uses_nothing() {
    for policy in every_limit() {
        let client = Client::new(virtual_time::store(), policy.clone()).await;
        let before = client.wait_of_next().await;
        for deadline in ["999m", "999999u", "0S"] {
            let denied = client.send(Some(deadline)).await;
            assert_eq!(denied, (429, Duration::ZERO), "{policy:?} {deadline}");
        }
        assert_eq!(client.wait_of_next().await, before, "{policy:?}");
        let held_up = client.send(Some("1S")).await;
        assert_eq!(held_up, (200, SECOND), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_beyond_the_longest_wait_leaves_it_as_it_is() {
    let policy = Policy::new("api", Limit::gcra(1, SECOND)).max_wait(ms(500));
    let client = Client::new(virtual_time::store(), policy).await;
    assert_eq!(client.send(Some("5S")).await, (429, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_cannot_be_read_bounds_nothing() {
    for deadline in ["500", "1s", "-5m", "", "1000000000n"] {
        let policy = Policy::new("api", Limit::gcra(1, SECOND)).max_wait(MINUTE);
        let client = Client::new(virtual_time::store(), policy).await;
        assert_eq!(
            client.send(Some(deadline)).await,
            (200, SECOND),
            "{deadline:?}"
        );
    }
}

/// A policy that lets nobody wait allows and denies whatever the deadline.
#[tokio::test(start_paused = true)]
async fn a_policy_that_delays_nobody_ignores_deadlines() {
    let policy = Policy::new("api", Limit::gcra(1, SECOND));
    let client = Client::new(virtual_time::store(), policy).await;
    assert_eq!(client.send(Some("1H")).await, (429, Duration::ZERO));
    tokio::time::sleep(SECOND).await;
    assert_eq!(client.send(Some("0S")).await, (200, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_short_deadlines_denial_does_not_bind_a_longer_one() {
    for policy in every_limit() {
        let store = DenyCache::new(virtual_time::store()).clock_for_tests(virtual_time::clock());
        let client = Client::new(store.clone(), policy.clone()).await;
        for _ in 0..3 {
            let denied = client.send(Some("500m")).await;
            assert_eq!(denied, (429, Duration::ZERO), "{policy:?}");
        }
        assert_eq!(store.hits(), 2, "{policy:?}");
        assert_eq!(client.send(Some("2S")).await, (200, SECOND), "{policy:?}");
        assert_eq!(client.send(None).await, (200, SECOND), "{policy:?}");
    }
}
