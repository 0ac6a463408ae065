//! Policies that delay requests: the delays that were decided stay true.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tokio::time::{Instant, sleep};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Key, Limit, Limiter, Policy, RateLimitLayer, SECOND, per_second};

use super::stated;
use support::virtual_time::{self, ms};

type Limited = BoxCloneService<Request<u64>, Response<()>, Infallible>;

/// How long the service takes. Then it reports the cost that the request's body states.
const WORK: Duration = Duration::from_millis(10);

/// The estimate is two permits; one comes back every 50 ms.
fn service(limit: Limit) -> (Limited, Limiter) {
    let policy = Policy::new("api", limit).max_wait(SECOND);
    let policy = policy.cost(2).settle(stated);
    let limiter = Limiter::new(virtual_time::store(), [policy]).unwrap();
    let inner = service_fn(async |request: Request<u64>| {
        sleep(WORK).await;
        let response = Response::builder().header("x-cost", request.body().to_string());
        Ok::<_, Infallible>(response.body(()).expect("a response"))
    });
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let service = service.map_response(|response| response.map(drop));
    (BoxCloneService::new(service), limiter)
}

/// Every limit that holds requests up, with room for one at a time.
fn limits() -> [Limit; 4] {
    [
        Limit::leaky_bucket(20, per_second(20)),
        Limit::leaky_bucket(2, per_second(20)).without_delay(),
        Limit::gcra(20, SECOND).burst(2),
        Limit::token_bucket(2, per_second(20)),
    ]
}

/// When a request that comes after this time goes on.
async fn goes_on(service: &Limited, comes: Duration, cost: u64) -> Duration {
    let start = Instant::now();
    sleep(comes).await;
    let response = service.clone().oneshot(Request::new(cost)).await.unwrap();
    assert_eq!(response.status(), 200);
    start.elapsed() - WORK
}

#[tokio::test(start_paused = true)]
async fn a_later_request_goes_after_those_that_wait() {
    for limit in limits() {
        for (cost, last) in [(0, 200), (1, 200), (2, 200), (3, 250), (4, 300)] {
            let (service, _) = service(limit);
            let went_on = tokio::join!(
                goes_on(&service, ms(0), cost),
                goes_on(&service, ms(0), 2),
                goes_on(&service, ms(60), 2),
            );
            assert_eq!(went_on, (ms(0), ms(100), ms(last)), "{limit:?}, {cost}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn permits_that_nobody_waits_behind_are_given_back() {
    for limit in limits() {
        for (cost, until_paid) in [(0, 0), (1, 40), (2, 90), (3, 140)] {
            let (service, limiter) = service(limit);
            goes_on(&service, ms(0), cost).await;
            let left = limiter.peek("api", Key::everybody()).await.unwrap();
            assert_eq!(left.reset_after(), ms(until_paid), "{limit:?}, {cost}");
        }
    }
}
