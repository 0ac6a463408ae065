//! The layer over services with a limited number of places: a request that is held up takes none.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::poll;
use http::{Request, Response};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    HOUR, Header, Key, Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer, SECOND,
    per_minute,
};

use support::virtual_time::{self, timed};

/// Answers at once, or after a round trip.
#[derive(Clone)]
struct OverTrip {
    store: MemoryStore,
    takes_trip: bool,
}

impl Store for OverTrip {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match self.store.ask(checks) {
            Answer::Ready(answer) if self.takes_trip => Answer::Pending(Box::pin(async {
                yield_now().await;
                answer
            })),
            answer => answer,
        }
    }
}

/// Limiters with this policy, one over each kind of store.
fn limiters(policy: &Policy) -> [Limiter; 2] {
    [false, true].map(|takes_trip| {
        let store = virtual_time::store();
        Limiter::new(OverTrip { store, takes_trip }, [policy.clone()]).unwrap()
    })
}

/// One a minute; requests that come too early are held up.
fn one_a_minute() -> Policy {
    Policy::new("api", Limit::gcra(1, MINUTE)).max_wait(HOUR)
}

async fn answer(_: Request<()>) -> Result<Response<()>, Infallible> {
    Ok(Response::new(()))
}

/// How long a client waits for its answer, from when it asks whether the service is ready.
async fn waited<S, B>(mut service: S, user: &str) -> Duration
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let request = Request::builder().header("x-user", user).body(()).unwrap();
    let answered = timed(async { service.ready().await.unwrap().call(request).await });
    let (response, waited) = answered.await;
    assert_eq!(response.unwrap().status(), 200);
    waited
}

#[tokio::test(start_paused = true)]
async fn one_client_that_is_held_up_keeps_no_other_from_the_service() {
    for policy in [
        one_a_minute(),
        Policy::new("api", Limit::leaky_bucket(9, per_minute(1))),
    ] {
        for limiter in limiters(&policy.by(Header::new("x-user"))) {
            let places = ConcurrencyLimitLayer::new(2).layer(service_fn(answer));
            let service = RateLimitLayer::new(limiter).wrap_body().layer(places);
            let from = |user| waited(service.clone(), user);
            let mallory = async { tokio::join!(from("m"), from("m"), from("m"), from("m")) };
            let bob = async {
                sleep(SECOND).await;
                from("bob").await
            };
            let (mallory, bob) = tokio::join!(mallory, bob);
            assert_eq!(bob, Duration::ZERO);
            assert_eq!(mallory, (Duration::ZERO, MINUTE, 2 * MINUTE, 3 * MINUTE));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_has_come_waits_for_a_place() {
    for limiter in limiters(&one_a_minute()) {
        let places = ConcurrencyLimitLayer::new(1).layer(service_fn(answer));
        let mut beside = places.clone();
        let service = RateLimitLayer::new(limiter).wrap_body().layer(places);
        assert_eq!(waited(service.clone(), "").await, Duration::ZERO);
        let until_it_leaves = async {
            sleep(SECOND).await;
            assert!(poll!(beside.ready()).is_ready());
            sleep(2 * MINUTE).await;
            drop(beside);
        };
        let (waited, ()) = tokio::join!(waited(service, ""), until_it_leaves);
        assert_eq!(waited, 2 * MINUTE + SECOND);
    }
}

/// When all permits of everybody are back.
async fn paid_after(limiter: &Limiter) -> Duration {
    let peeked = limiter.peek("api", Key::everybody()).await;
    peeked.unwrap().reset_after()
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_while_it_waits_for_a_place_gives_back() {
    for limiter in limiters(&one_a_minute()) {
        let places = ConcurrencyLimitLayer::new(1).layer(service_fn(answer));
        let mut beside = places.clone();
        let mut service = RateLimitLayer::new(limiter.clone())
            .wrap_body()
            .layer(places);
        waited(service.clone(), "").await;
        {
            let ready = service.ready().await.unwrap();
            let mut response = pin!(ready.call(Request::new(())));
            assert!(timeout(SECOND, response.as_mut()).await.is_err());
            assert!(poll!(beside.ready()).is_ready());
            assert!(timeout(MINUTE, response).await.is_err());
            assert_eq!(paid_after(&limiter).await, 59 * SECOND);
        }
        assert_eq!(paid_after(&limiter).await, Duration::ZERO);
        // Neither the permit nor the place is lost.
        drop(beside);
        assert_eq!(waited(service, "").await, Duration::ZERO);
    }
}

/// Becomes ready, or fails, on demand.
#[derive(Clone)]
struct Moody(Arc<Mutex<Result<(), &'static str>>>);

impl Service<Request<()>> for Moody {
    type Response = Response<()>;
    type Error = &'static str;
    type Future = Ready<Result<Response<()>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(*self.0.lock().unwrap())
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_service_fails_meanwhile_gives_back_its_take() {
    for limiter in limiters(&one_a_minute()) {
        let mood = Arc::new(Mutex::new(Ok(())));
        let mut service = RateLimitLayer::new(limiter.clone())
            .wrap_body()
            .layer(Moody(mood.clone()));
        let start = Instant::now();
        let first = service.ready().await.unwrap().call(Request::new(()));
        assert!(first.await.is_ok());
        let second = service.ready().await.unwrap().call(Request::new(()));
        let mut second = pin!(second);
        assert!(timeout(SECOND, second.as_mut()).await.is_err());
        *mood.lock().unwrap() = Err("gone");
        assert_eq!(second.as_mut().await.unwrap_err(), "gone");
        assert_eq!(start.elapsed(), MINUTE);
        // Even before the future is dropped.
        assert_eq!(paid_after(&limiter).await, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_held_up_if_limiting_is_turned_off_meanwhile() {
    let [_, limiter] = limiters(&one_a_minute());
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(service_fn(answer));
    assert_eq!(waited(service.clone(), "alice").await, Duration::ZERO);
    let mut next = Box::pin(waited(service, "alice"));
    assert!(poll!(&mut next).is_pending());
    limiter.turn_off();
    assert_eq!(next.await, Duration::ZERO);
}
