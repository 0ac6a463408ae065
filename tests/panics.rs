//! What panics in code of the user's own fails its own request at most, and no other or later one.
#![cfg(feature = "memory")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use support::bench::Bench;
use support::on_every_store;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    AccessList, BreakerState, DecisionEvent, DecisionResult, Key, Limit, MINUTE, Observer, Policy,
    RateLimitLayer, RefusalEvent, RefusalReason, StoreErrorKind,
};

/// An observer that panics whatever it is told.
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
struct Told(Arc<Mutex<(Vec<DecisionResult>, Vec<RefusalReason>)>>);

impl Observer for Told {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self.0.lock().unwrap().0.push(event.result());
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        self.0.lock().unwrap().1.push(event.reason);
    }
}

async fn an_observer_that_panics_fails_no_request_and_costs_no_permits(bench: &Bench) {
    let told = Told::default();
    let policies = [
        Policy::new("window", Limit::fixed_window(2, MINUTE)),
        Policy::new("queue", Limit::gcra(60_000, MINUTE).burst(1)),
        Policy::new("slots", Limit::concurrency(1)),
    ];
    let builder = bench
        .builder(policies)
        .observe(Panics)
        .observe(told.clone());
    let denied = AccessList::new().keys([Key::from("mallory")]);
    let limiter = builder.deny(denied).build().unwrap();

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
        assert!(
            limiter
                .acquire("queue", "alice", 1)
                .await
                .unwrap()
                .is_allowed()
        );
    }
    for _ in 0..2 {
        let held = limiter.hold("slots", "alice").await.unwrap();
        assert!(held.is_allowed());
        drop(held);
        limiter.flush().await;
    }

    let inner = service_fn(async |_: Request<()>| Ok::<_, &str>(Response::new("hello")));
    let service = RateLimitLayer::new(limiter.clone()).layer(inner);
    let response = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
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

on_every_store! {
    an_observer_that_panics_fails_no_request_and_costs_no_permits
}
