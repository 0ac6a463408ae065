//! What is in flight back to the store when a process, or one of its runtimes, ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use futures_util::{FutureExt, poll};
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::Store;
use tower_throttle::{
    BreakerState, HOUR, Limit, Limiter, Policy, RateLimitLayer, ResponseHead, SECOND,
    StoreErrorKind,
};

use super::late::{LATE, Late};
use super::places::{EVERYBODY, POLICY, TIMEOUT, come_to, in_time, in_use, patient, policy};
use super::stage::{Answer, bodyless};
use super::watched::Watched;
use support::redis::Server;
use support::virtual_time::timed;

/// The runtimes that a `main` may have.
fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_current_thread().enable_all().build().unwrap(),
        workers(),
    ]
}

fn workers() -> Runtime {
    let builder = &mut Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// One place over a server, with a lease that outlives every test.
async fn limiter(server: &Server) -> Limiter {
    let store = server.store().await;
    patient(store, [place()])
}

/// One place, with a lease that outlives every test.
fn place() -> Policy {
    policy(Limit::concurrency(1).lease(HOUR))
}

/// Whether that place is free, asked with a circuit breaker that has seen nothing yet.
async fn is_free(store: impl Store) -> bool {
    in_use(&patient(store, [place()])).await == 0
}

/// A request to a service behind the limit that answers at once.
async fn answered(limiter: &Limiter) -> Result<Response<impl Body>, &'static str> {
    let inner = service_fn(async |_: Request<()>| -> Answer { Ok(bodyless(200)) });
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    service.oneshot(Request::new(())).await
}

#[test]
fn after_flush_a_dropped_permit_holds_no_place() {
    for runtime in runtimes() {
        let server = Server::start();
        runtime.block_on(in_time(async {
            let limiter = limiter(&server).await;
            let held = limiter.admit(POLICY, EVERYBODY).await;
            assert!(held.is_ok());
            drop(held);
            assert!(limiter.flush().await);
        }));
        drop(runtime);
        assert_eq!(server.keys(), [""; 0]);
    }
}

#[test]
fn after_flush_a_finished_response_holds_no_place() {
    for runtime in runtimes() {
        let server = Server::start();
        runtime.block_on(in_time(async {
            let limiter = limiter(&server).await;
            let response = answered(&limiter).await.unwrap();
            assert_eq!(response.status(), 200);
            assert!(response.into_body().collect().await.is_ok());
            assert!(limiter.flush().await);
        }));
        drop(runtime);
        assert_eq!(server.keys(), [""; 0]);
    }
}

#[test]
fn a_runtime_that_ends_leaves_giving_back_to_the_takers() {
    let server = Server::start();
    let first = workers();
    let limiter = first.block_on(limiter(&server));
    let held = first.block_on(limiter.admit(POLICY, EVERYBODY));
    assert!(held.is_ok());
    let short = Builder::new_current_thread().enable_all().build().unwrap();
    short.block_on(async { drop(held) });
    drop(short);
    assert!(first.block_on(in_time(limiter.flush())));
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn nobody_waits_for_a_runtime_that_is_not_driven() {
    let [idle, busy] = [0; 2].map(|_| {
        let builder = &mut Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    });
    let limiter = patient(Watched::new(), [policy(Limit::concurrency(1))]);
    let held = busy.block_on(limiter.admit(POLICY, EVERYBODY));
    assert!(held.is_ok());
    idle.block_on(async { drop(held) });
    let flushed = busy.block_on(timed(limiter.flush()));
    assert_eq!(flushed, (false, 2 * TIMEOUT));
    assert!(idle.block_on(limiter.flush()));
    assert_eq!(busy.block_on(in_use(&limiter)), 0);
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_a_failing_store_no_longer_than_it_says() {
    let store = Watched::new();
    let limiter = patient(store.clone(), [place()]);
    let held = limiter.admit(POLICY, EVERYBODY).await.unwrap();
    store.fail(StoreErrorKind::Unreachable);
    drop(held);
    let flushed = timed(limiter.flush()).await;
    assert_eq!(flushed, (false, 2 * TIMEOUT));
    let (flushed, ()) = join(timed(limiter.flush()), async {
        sleep(SECOND).await;
        store.work();
    })
    .await;
    assert!(flushed.0);
    assert!((SECOND..2 * SECOND).contains(&flushed.1), "{flushed:?}");
    assert!(is_free(store).await);
    assert_eq!(timed(limiter.flush()).await, (true, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_a_hanging_store_no_longer_than_it_says() {
    let store = Watched::new();
    let limiter = patient(store.clone(), [place()]);
    let held = limiter.admit(POLICY, EVERYBODY).await.unwrap();
    store.answer_after(HOUR);
    drop(held);
    assert_eq!(timed(limiter.flush()).await, (false, 2 * TIMEOUT));
}

/// Each way in which a place is not given back the first time, and the time that passes until the
/// limiter is flushed: within a pause between two tries.
#[tokio::test(start_paused = true)]
async fn flush_does_at_once_what_waits_to_be_tried_again() {
    for kind in [
        StoreErrorKind::Unreachable,
        StoreErrorKind::Interrupted,
        StoreErrorKind::TimedOut,
        StoreErrorKind::Overloaded,
    ] {
        for later in [Duration::ZERO, SECOND / 2, 10 * SECOND] {
            let store = Watched::new();
            let limiter = patient(store.clone(), [place()]);
            let held = limiter.admit(POLICY, EVERYBODY).await.unwrap();
            store.fail(kind);
            drop(held);
            yield_now().await;
            sleep(later).await;
            store.work();
            let (flushed, waited) = timed(limiter.flush()).await;
            assert!(flushed && waited < SECOND / 10, "{kind:?}, {waited:?}");
            assert!(is_free(store).await, "{kind:?}");
        }
    }
}

/// As after a blip right before a restart: nobody has asked since the store is back.
#[tokio::test(start_paused = true)]
async fn flush_gives_back_while_the_breaker_is_open() {
    let store = Watched::new();
    let limiter = patient(store.clone(), [policy(Limit::concurrency(20).lease(HOUR))]);
    let mut held = Vec::new();
    for _ in 0..19 {
        held.push(limiter.admit(POLICY, EVERYBODY).await.unwrap());
    }
    store.fail(StoreErrorKind::Unreachable);
    while limiter.breaker_state() == BreakerState::Closed {
        let _ = limiter.peek(POLICY, EVERYBODY).await.unwrap();
    }
    drop(held);
    store.work();
    assert_eq!(limiter.breaker_state(), BreakerState::Open);
    let (flushed, waited) = timed(limiter.flush()).await;
    assert!(flushed && waited < SECOND / 10, "{waited:?}");
    assert_eq!(
        limiter.breaker_state(),
        BreakerState::Open,
        "for all others"
    );
    sleep(SECOND).await;
    assert_eq!(in_use(&limiter).await, 0);
}

/// The question may still be on its way when the place is given back, and take it after that.
#[tokio::test(start_paused = true)]
async fn flush_does_not_report_places_that_may_yet_be_acquired() {
    let store = Arc::new(Late::new());
    let hasty = Limiter::builder(Arc::clone(&store), [place()]);
    let hasty = hasty.timeout(LATE / 2).build().unwrap();
    let denied = hasty.admit(POLICY, EVERYBODY).await;
    assert!(denied.is_err());
    drop(denied);
    let flushed = timed(hasty.flush()).await;
    assert_eq!(flushed, (false, LATE));
    let limiter = patient(store, [place()]);
    come_to(&limiter, 0).await;
    sleep(2 * SECOND).await;
    assert!(hasty.flush().await);
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_what_callers_who_went_away_give_back() {
    let limit = Limit::gcra(3, HOUR);
    let limiter = patient(Watched::new(), [policy(limit).max_wait(HOUR)]);
    let gone = [
        answered(&limiter).map(drop).boxed(),
        limiter.acquire(POLICY, EVERYBODY, 1).map(drop).boxed(),
    ];
    for mut asks in gone {
        assert!(poll!(&mut asks).is_pending());
        drop(asks);
        assert!(limiter.flush().await);
        assert_eq!(in_use(&limiter).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_what_a_response_has_settled() {
    for cost in [3, 7] {
        let store = Watched::new();
        store.answer_after(SECOND);
        let settle = move |_: &ResponseHead<'_>| cost;
        let policy = policy(Limit::gcra(10, HOUR)).cost(5).settle(settle);
        let limiter = patient(store, [policy]);
        assert!(answered(&limiter).await.is_ok());
        assert_eq!(timed(limiter.flush()).await, (true, SECOND), "{cost}");
    }
}

/// It asks once more if the store surely has not done it. Otherwise permits could be charged, or
/// come back, twice.
#[tokio::test(start_paused = true)]
async fn flush_has_a_settlement_carried_out_unless_it_may_have_been() {
    for cost in [3, 7] {
        for (kind, left) in [
            (StoreErrorKind::Unreachable, 10 - cost),
            (StoreErrorKind::Overloaded, 10 - cost),
            (StoreErrorKind::Interrupted, 5),
        ] {
            let store = Watched::new();
            store.answer_after(SECOND);
            let fails = store.clone();
            let settle = move |_: &ResponseHead<'_>| {
                fails.fail(kind);
                cost
            };
            let settled = || policy(Limit::gcra(10, HOUR)).cost(5).settle(settle.clone());
            let limiter = patient(store.clone(), [settled()]);
            assert!(answered(&limiter).await.is_ok());
            let works_later = async {
                sleep(10 * SECOND).await;
                store.work();
            };
            let (flushed, ()) = join(limiter.flush(), works_later).await;
            assert_eq!(flushed, left != 5, "{kind:?}");
            let limiter = patient(store, [settled()]);
            let decision = limiter.peek(POLICY, EVERYBODY).await.unwrap();
            assert_eq!(decision.remaining(), left, "{kind:?}");
        }
    }
}
