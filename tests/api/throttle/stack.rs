//! Its place in a stack: the service inside, which has to be ready first, and the layers outside.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Ready, ready};
use futures_util::poll;
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{HOUR, Key, Limit, Limiter, MINUTE, Policy, SECOND};

use super::{Partner, Watched, layer};
use support::redis::Server;

/// Becomes ready, and fails, on demand.
#[derive(Clone)]
struct Moody(Arc<Mutex<Poll<Result<(), &'static str>>>>);

impl Service<()> for Moody {
    type Response = ();
    type Error = &'static str;
    type Future = Ready<Result<(), &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        *self.0.lock().unwrap()
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Err("ill"))
    }
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_acquired_before_the_inner_service_is_ready() {
    let store = Watched::new();
    let mood = Arc::new(Mutex::new(Poll::Pending));
    let mut service = layer(&store.limiter(Limit::gcra(1, SECOND))).layer(Moody(mood.clone()));
    assert!(poll!(service.ready()).is_pending());
    assert!(store.asked().is_empty());
    *mood.lock().unwrap() = Poll::Ready(Ok(()));
    assert!(poll!(service.ready()).is_ready());
    assert_eq!(store.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_inner_service_pass_unchanged() {
    let store = Watched::new();
    let mood = Arc::new(Mutex::new(Poll::Ready(Err("not today"))));
    let mut service = layer(&store.limiter(Limit::gcra(1, SECOND))).layer(Moody(mood.clone()));
    assert_eq!(service.ready().await.err(), Some("not today"));
    *mood.lock().unwrap() = Poll::Ready(Ok(()));
    assert_eq!(service.ready().await.unwrap().call(()).await, Err("ill"));
}

#[tokio::test(start_paused = true)]
async fn a_broken_inner_service_gets_no_request() {
    let store = Watched::new();
    let limiter = store.limiter(Limit::gcra(1, SECOND));
    let mood = Arc::new(Mutex::new(Poll::Ready(Ok(()))));
    let mut service = layer(&limiter).layer(Moody(mood.clone()));
    let _ = limiter.check("partner", Key::everybody()).await.unwrap();
    assert!(poll!(service.ready()).is_pending());
    *mood.lock().unwrap() = Poll::Ready(Err("gone"));
    assert_eq!(service.ready().await.err(), Some("gone"));
    drop(service);
    let left = limiter.peek("partner", Key::everybody()).await.unwrap();
    assert_eq!(left.reset_after(), SECOND, "its permit is given back");
}

/// Whether somebody gets through without the limit while three wait for their permits.
async fn others_get_through<S>(throttled: S, inner: ConcurrencyLimit<Partner>) -> bool
where
    S: Service<(), Response = Duration> + Clone,
{
    let mut waiting = [(); 3].map(|()| Box::pin(throttled.clone().ready_oneshot()));
    for each in &mut waiting {
        assert!(poll!(each).is_pending());
    }
    poll!(pin!(ServiceExt::<()>::ready_oneshot(inner))).is_ready()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_an_inner_place_unless_an_outer_limit_is_full() {
    let inner = ConcurrencyLimit::new(Partner::new(), 3);
    let limiter = Watched::new().limiter(Limit::gcra(1, HOUR));
    let throttled = layer(&limiter).layer(inner.clone());
    throttled.clone().oneshot(()).await.unwrap();
    assert!(!others_get_through(throttled.clone(), inner.clone()).await);
    let bounded = ConcurrencyLimit::new(throttled, 2);
    assert!(others_get_through(bounded, inner).await);
}

/// It decides by the first poll, and a store that takes a round trip has not answered by then.
#[tokio::test]
async fn load_shed_outside_sheds_all_over_redis_even_when_idle() {
    let server = Server::start();
    let in_redis = Limiter::builder(
        server.store().await,
        [Policy::new("partner", Limit::gcra(1, HOUR))],
    );
    let in_redis = in_redis.timeout(MINUTE).build().unwrap();
    let in_memory = Watched::new().limiter(Limit::gcra(1, HOUR));
    for (limiter, expected) in [(in_redis, [false; 3]), (in_memory, [true, false, false])] {
        let service = LoadShed::new(layer(&limiter).layer(Partner::new()));
        let mut sent = Vec::new();
        for _ in 0..expected.len() {
            sent.push(service.clone().oneshot(()).await.is_ok());
        }
        assert_eq!(sent, expected);
    }
}
