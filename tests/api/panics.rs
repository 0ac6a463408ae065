//! What panics in code of the user's own fails its own request at most, and no other or later one.
#![cfg(feature = "memory")]

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use support::bench::Bench;
use support::on_every_store;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    AccessList, BreakerState, Clock, DecisionEvent, DecisionResult, Header, Key, Limit, Limiter,
    MINUTE, MemoryStore, Micros, Observer, Policy, RateLimitLayer, RefusalEvent, RefusalReason,
    Rejection, RequestHead, ResponseHead, Rules, SECOND, StoreErrorKind, SystemClock,
    ThrottleLayer,
};

/// An observer that panics at every event.
struct Panics;

impl Observer for Panics {
    fn on_decision(&self, _: &DecisionEvent<'_>) {
        panic!("at a decision, as the test wants it to");
    }

    fn on_refusal(&self, _: &RefusalEvent<'_>) {
        panic!("at a refusal, as the test wants it to");
    }

    fn on_store_answer(&self, _: Duration, _: Option<StoreErrorKind>) {
        panic!("at an answer, as the test wants it to");
    }

    fn on_breaker(&self, _: BreakerState) {
        panic!("at the breaker, as the test wants it to");
    }
}

/// An observer behind it.
#[derive(Clone, Default)]
struct Observed(Arc<Mutex<(Vec<DecisionResult>, Vec<RefusalReason>)>>);

impl Observer for Observed {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self.0.lock().unwrap().0.push(event.result());
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        self.0.lock().unwrap().1.push(event.reason);
    }
}

async fn a_panicking_observer_fails_no_request(bench: &Bench) {
    let told = Observed::default();
    let policies = [
        Policy::new("window", Limit::fixed_window(2, MINUTE)),
        Policy::new("queue", Limit::gcra(60_000, MINUTE).burst(1)),
        Policy::new("slots", Limit::concurrency(1)),
    ];
    let denied = AccessList::new().keys([Key::from("mallory")]);
    let builder = bench
        .builder(Rules::new(policies).deny(denied))
        .observe(Panics)
        .observe(told.clone());
    let limiter = builder.build().unwrap();

    assert!(
        !limiter
            .check("window", "mallory")
            .await
            .unwrap()
            .is_allowed()
    );
    assert!(limiter.check("window", "alice").await.unwrap().is_allowed());
    // The clock stands still: the third waits a millisecond.
    for _ in 0..3 {
        assert!(limiter.acquire("queue", "alice", 1).await.is_ok());
    }
    for _ in 0..2 {
        let held = limiter.admit("slots", "alice").await;
        assert!(held.is_ok());
        drop(held);
        limiter.flush().await;
    }

    assert_eq!(
        get(RateLimitLayer::new(limiter.clone()), "alice").await,
        200
    );
    limiter.flush().await;
    let left = limiter.peek("slots", Key::everybody()).await.unwrap();
    assert_eq!(left.remaining(), 1);

    use DecisionResult::{Allowed, NearLimit, Waited};
    let (decisions, refusals) = std::mem::take(&mut *told.0.lock().unwrap());
    let of_questions = [Allowed, NearLimit, NearLimit, Waited, NearLimit, NearLimit];
    assert_eq!(decisions[..6], of_questions);
    assert_eq!(decisions.len(), 6 + 3);
    assert_eq!(refusals, [RefusalReason::Listed]);
}

/// The status of a request through this layer, once its body is dropped.
async fn get(layer: RateLimitLayer, user: &str) -> u16 {
    let inner = service_fn(async |_: Request<()>| Ok::<_, &str>(Response::new("hello")));
    let request = Request::builder().header("x-user", user).body(()).unwrap();
    let response = layer
        .wrap_body()
        .layer(inner)
        .oneshot(request)
        .await
        .unwrap();
    response.status().as_u16()
}

async fn panics(work: impl Future) -> bool {
    AssertUnwindSafe(work).catch_unwind().await.is_err()
}

async fn what_panics_in_a_request_costs_no_other_request_anything(bench: &Bench) {
    let panics_for_mallory = |request: &RequestHead<'_>| {
        assert_ne!(request.headers["x-user"], "mallory", "in the cost");
        1
    };
    let panics_at_teapots = |response: &ResponseHead<'_>| {
        assert_ne!(response.status, 200, "in the condition");
        true
    };
    let user = || Header::new("x-user");
    let slots = || Policy::new("slots", Limit::concurrency(1));
    let few = || Policy::new("few", Limit::fixed_window(5, MINUTE)).by(user());
    for (name, policy) in [
        ("cost", few().cost_by(panics_for_mallory)),
        ("condition", few().count_if(panics_at_teapots)),
        ("rejection", few().cost_by(|_: &RequestHead<'_>| 6)),
    ] {
        let limiter = bench.limiter([slots(), policy]);
        let layer = RateLimitLayer::new(limiter.clone());
        let layer = layer.on_rejection(
            |_: &RequestHead<'_>, _: &Rejection| -> Response<&'static str> {
                panic!("in the rejection");
            },
        );
        assert!(panics(get(layer, "mallory")).await, "{name}");
        limiter.flush().await;
        let free = limiter.peek("slots", Key::everybody()).await.unwrap();
        assert_eq!(free.remaining(), 1, "{name}");
        let alice = Key::header("x-user", b"alice");
        assert_eq!(limiter.peek("few", alice).await.unwrap().remaining(), 5);
    }
}

on_every_store! {
    what_panics_in_a_request_costs_no_other_request_anything
    a_panicking_observer_fails_no_request
}

/// A store that panics on demand, when it is asked or when its answer is awaited.
#[derive(Clone)]
struct Unsound {
    store: MemoryStore,
    panics: Arc<AtomicBool>,
    is_late: bool,
    /// How often it has panicked.
    panicked: Arc<AtomicU32>,
}

impl Unsound {
    fn new(is_late: bool) -> Self {
        Self {
            store: MemoryStore::new(),
            panics: Arc::new(AtomicBool::new(true)),
            is_late,
            panicked: Arc::default(),
        }
    }

    fn may_panic(&self) {
        if self.panics.load(Ordering::SeqCst) {
            self.panicked.fetch_add(1, Ordering::SeqCst);
            panic!("in the store, as the test wants it to");
        }
    }
}

impl Store for Unsound {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        if !self.is_late {
            self.may_panic();
        }
        let (this, answer) = (self.clone(), self.store.ask(checks));
        let mut answer = Some(answer);
        Answer::Pending(Box::pin(std::future::poll_fn(move |_| {
            this.may_panic();
            let Some(Answer::Ready(answer)) = answer.take() else {
                panic!("polled after it was done");
            };
            std::task::Poll::Ready(answer)
        })))
    }
}

/// A clock that panics once it is in use.
#[derive(Default)]
struct Stuck(AtomicBool);

impl Clock for Stuck {
    fn now(&self) -> Micros {
        assert!(!self.0.swap(true, Ordering::SeqCst), "in the clock");
        SystemClock.now()
    }
}

/// A second panic while the first one gives back what the request may have taken would abort the
/// process.
#[tokio::test]
async fn a_store_that_always_panics_fails_requests_not_the_process() {
    let stores: [Box<dyn Store>; 3] = [
        Box::new(Unsound::new(false)),
        Box::new(Unsound::new(true)),
        Box::new(MemoryStore::builder().clock(Stuck::default()).build()),
    ];
    for store in stores {
        let limiter = Limiter::new(store, [Policy::new("slots", Limit::concurrency(1))]).unwrap();
        assert!(panics(limiter.admit("slots", Key::everybody())).await);
        let layer = RateLimitLayer::new(limiter);
        assert!(panics(get(layer, "alice")).await);
    }
}

/// An answer that has panicked must not be polled again.
#[tokio::test]
async fn a_panicking_store_is_not_awaited_after_its_caller_left() {
    let store = Unsound::new(true);
    let policy = Policy::new("queue", Limit::gcra(1, SECOND)).max_wait(MINUTE);
    let limiter = Limiter::new(store.clone(), [policy]).unwrap();
    assert!(panics(get(RateLimitLayer::new(limiter.clone()), "alice")).await);
    limiter.flush().await;
    assert_eq!(store.panicked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_throttle_whose_store_has_panicked_asks_anew() {
    for is_late in [true, false] {
        let store = Unsound::new(is_late);
        let policy = Policy::new("partner", Limit::gcra(1, SECOND));
        let limiter = Limiter::new(store.clone(), [policy]).unwrap();
        let layer = ThrottleLayer::new(limiter, "partner").unwrap();
        let mut service = layer.layer(service_fn(async |()| Ok::<_, &str>("sent")));
        for _ in 0..2 {
            assert!(panics(service.ready()).await);
        }
        assert_eq!(store.panicked.load(Ordering::SeqCst), 2, "asked each time");
        store.panics.store(false, Ordering::SeqCst);
        service.ready().await.unwrap();
    }
}
