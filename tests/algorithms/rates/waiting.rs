//! Requests that are held up until they fit under every rate, on a clock that advances by itself.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{
    HOUR, HeaderCost, Key, Limit, Limiter, MINUTE, Micros, Policy, RateLimitLayer, SECOND,
};

use support::virtual_time::{self, ms};

/// Three rates whose permits come back every 250 ms, 500 ms and 2 s.
fn limit() -> Limit {
    Limit::gcra(4, SECOND)
        .and(6, 3 * SECOND)
        .burst(5)
        .and(30, MINUTE)
}

fn limiter(limit: Limit) -> Limiter {
    let policy = Policy::new("api", limit).cost_by(HeaderCost::new("x-cost"));
    Limiter::new(virtual_time::store(), [policy.max_wait(HOUR)]).unwrap()
}

fn request(cost: u64) -> Request<()> {
    let request = Request::builder().header("x-cost", cost);
    request.body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_denial_tells_of_no_renewal_after_its_retry() {
    // A permit comes back every second, and every second and a half.
    let limit = Limit::gcra(60, MINUTE).burst(2).and(2_400, HOUR).burst(5);
    let policy = Policy::new("api", limit).max_wait(5 * SECOND);
    let limiter = Limiter::new(virtual_time::store(), [policy]).unwrap();
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter).wrap_body().layer(inner);
    let asked = (0..8).map(|_| service.clone().oneshot(request(1)));
    let responses = join_all(asked).await;
    let (denied, allowed) = responses.split_last().unwrap();
    for response in allowed {
        assert_eq!(response.as_ref().unwrap().status(), 200);
    }
    // The second rate would hold it up for 4.5 s, after which it has a permit.
    let headers = denied.as_ref().unwrap().headers();
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(headers["ratelimit"], r#""api";r=0;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn when_they_go_on_no_rate_is_passed() {
    let start = Instant::now();
    let gone_on = Arc::new(Mutex::new(Vec::new()));
    let inner = service_fn(|request: Request<()>| {
        let cost: u64 = request.headers()["x-cost"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        gone_on.lock().unwrap().push((start.elapsed(), cost));
        async { Ok::<_, Infallible>(Response::new(())) }
    });
    let service = RateLimitLayer::new(limiter(limit()))
        .wrap_body()
        .layer(inner);
    // Bursts and pauses, so that each of the rates holds requests up at times.
    let arrivals = (0..150_u64).scan(Duration::ZERO, |at, number| {
        *at += ms(number * 7_919 % 1_300) * u32::from(number % 5 == 0) * 4;
        Some((*at, 1 + (number % 3)))
    });
    join_all(arrivals.map(|(at, cost)| {
        let service = service.clone();
        async move {
            sleep(at).await;
            let response = service.oneshot(request(cost)).await.unwrap();
            assert_eq!(response.status(), 200);
        }
    }))
    .await;

    let gone_on = gone_on.lock().unwrap();
    assert_eq!(gone_on.len(), 150);
    for rate in limit().rates() {
        let algorithm = Algorithm::try_from(&rate).unwrap();
        let mut state = algorithm.untouched();
        for (at, cost) in &*gone_on {
            let (at, action) = (Micros::from(*at + HOUR), Action::acquire(*cost));
            let reading = algorithm.read(&state, at, &action);
            assert!(reading.fits, "{rate}: {at:?} of {gone_on:?}");
            algorithm.commit(&mut state, at, &action, reading);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_gives_up_gives_back_under_every_rate() {
    let limiter = limiter(Limit::gcra(2, SECOND).and(3, MINUTE));
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let send = |cost| service.clone().oneshot(request(cost));
    for cost in [2, 1] {
        assert_eq!(send(cost).await.unwrap().status(), 200);
    }
    let before = limiter.peek("api", Key::everybody()).await.unwrap();
    assert!(timeout(10 * SECOND, send(1)).await.is_err());
    let looked = limiter.peek("api", Key::everybody()).await.unwrap();
    let expected = before.reset_after() - 10 * SECOND;
    assert_eq!(looked.reset_after(), expected, "as if it had never come");
}
