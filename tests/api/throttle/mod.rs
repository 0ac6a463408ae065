//! `ThrottleLayer`: a service that is ready when the whole fleet may send the next request.

mod bans;
mod feedback;
mod giving_up;
mod outage;
mod pace;
mod permits;
mod replaced;
mod runtimes;
mod sharing;
mod stack;
mod store;
mod types;

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{Ready, ready};
use support::virtual_time::{self, ms};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    Limit, Limiter, MemoryStore, Policy, StoreError, StoreErrorKind, Throttle, ThrottleLayer,
};

/// Counts on tokio's clock, records when it was asked, and fails a given number of times.
#[derive(Clone)]
struct Watched(Arc<Shared>);

struct Shared {
    store: MemoryStore,
    start: Instant,
    asked: Mutex<Vec<Duration>>,
    failures: AtomicU32,
}

impl Watched {
    fn new() -> Self {
        Self::failing(0)
    }

    fn failing(failures: u32) -> Self {
        Self(Arc::new(Shared {
            store: virtual_time::store(),
            start: Instant::now(),
            asked: Mutex::default(),
            failures: failures.into(),
        }))
    }

    /// When it was asked.
    fn asked(&self) -> Vec<Duration> {
        self.0.asked.lock().unwrap().clone()
    }

    fn fail_next(&self, failures: u32) {
        self.0.failures.store(failures, Ordering::SeqCst);
    }

    fn limiter(&self, limit: Limit) -> Limiter {
        self.limiter_of(Policy::new("partner", limit))
    }

    fn limiter_of(&self, policy: Policy) -> Limiter {
        Limiter::new(self.clone(), [policy]).unwrap()
    }
}

impl Store for Watched {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        self.0.asked.lock().unwrap().push(self.0.start.elapsed());
        let down = |left: u32| left.checked_sub(1);
        let failures = &self.0.failures;
        match failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, down) {
            Ok(_) => Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable))),
            Err(_) => self.0.store.ask(checks),
        }
    }
}

/// Answers any request with the time at which it was called.
#[derive(Clone, Debug)]
struct Partner(Instant);

impl Partner {
    fn new() -> Self {
        Self(Instant::now())
    }
}

impl<R> Service<R> for Partner {
    type Response = Duration;
    type Error = Infallible;
    type Future = Ready<Result<Duration, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        ready(Ok(self.0.elapsed()))
    }
}

fn layer(limiter: &Limiter) -> ThrottleLayer {
    ThrottleLayer::new(limiter.clone(), "partner").unwrap()
}

/// A service under this limit and the store behind it.
fn throttled(limit: Limit) -> (Throttle<Partner>, Watched) {
    let store = Watched::new();
    (layer(&store.limiter(limit)).layer(Partner::new()), store)
}

/// When a request is sent.
async fn send(service: &mut Throttle<Partner>) -> Duration {
    ServiceExt::<()>::ready(service).await.unwrap();
    service.call(()).await.unwrap()
}

/// When this many requests are sent, one after the other.
async fn send_all(mut service: Throttle<Partner>, requests: usize) -> Vec<Duration> {
    let mut sent = Vec::new();
    for _ in 0..requests {
        sent.push(send(&mut service).await);
    }
    sent
}

/// Asks once whether it is ready.
fn is_ready(service: &mut Throttle<Partner>) -> bool {
    let cx = &mut Context::from_waker(Waker::noop());
    Service::<()>::poll_ready(service, cx).is_ready()
}

fn after(milliseconds: impl IntoIterator<Item = u64>) -> Vec<Duration> {
    milliseconds.into_iter().map(ms).collect()
}
