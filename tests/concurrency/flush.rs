//! What is in flight back to the store when a process, or one of its runtimes, ends.

use std::time::Duration;

use futures_util::{FutureExt, poll};
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{HOUR, Limit, Limiter, RateLimitLayer, ResponseHead, SECOND, StoreErrorKind};

use super::places::{EVERYBODY, POLICY, TIMEOUT, come_to, in_time, patient, policy, taken};
use super::stage::{Answer, bodyless};
use super::support::redis::Server;
use super::support::virtual_time::timed;
use super::watched::Watched;

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
    patient(store, [policy(Limit::concurrency(1).lease(HOUR))])
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
fn after_flush_a_dropped_guard_holds_no_place() {
    for runtime in runtimes() {
        let server = Server::start();
        runtime.block_on(in_time(async {
            let limiter = limiter(&server).await;
            let held = limiter.hold(POLICY, EVERYBODY).await.unwrap();
            assert!(held.is_allowed());
            drop(held);
            limiter.flush().await;
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
            limiter.flush().await;
        }));
        drop(runtime);
        assert_eq!(server.keys(), [""; 0]);
    }
}

#[test]
fn a_runtime_that_ends_leaves_giving_back_to_the_one_on_which_it_was_taken() {
    let server = Server::start();
    let first = workers();
    let limiter = first.block_on(limiter(&server));
    let held = first.block_on(limiter.hold(POLICY, EVERYBODY)).unwrap();
    assert!(held.is_allowed());
    let short = Builder::new_current_thread().enable_all().build().unwrap();
    short.block_on(async { drop(held) });
    drop(short);
    first.block_on(in_time(limiter.flush()));
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn nobody_waits_for_a_runtime_that_is_not_driven() {
    let [idle, busy] = [0; 2].map(|_| {
        let builder = &mut Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    });
    let limiter = patient(Watched::new(), [policy(Limit::concurrency(1))]);
    let held = busy.block_on(limiter.hold(POLICY, EVERYBODY)).unwrap();
    assert!(held.is_allowed());
    idle.block_on(async { drop(held) });
    let ((), waited) = busy.block_on(timed(limiter.flush()));
    assert_eq!(waited, 2 * TIMEOUT);
    idle.block_on(limiter.flush());
    assert_eq!(busy.block_on(taken(&limiter)), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_until_a_store_that_failed_is_asked_again() {
    let store = Watched::new();
    let limiter = patient(store.clone(), [policy(Limit::concurrency(1))]);
    let held = limiter.hold(POLICY, EVERYBODY).await.unwrap();
    store.fail(StoreErrorKind::Unreachable);
    drop(held);
    let ((), waited) = timed(limiter.flush()).await;
    assert_eq!((waited, store.released()), (Duration::ZERO, vec![1]));
    store.work();
    come_to(&limiter, 0).await;
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
        limiter.flush().await;
        assert_eq!(taken(&limiter).await, 0);
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
        let ((), waited) = timed(limiter.flush()).await;
        assert_eq!(waited, SECOND, "{cost}");
    }
}
