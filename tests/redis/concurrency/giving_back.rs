//! Leases when the store is slow, gone, or refuses.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::store::DenyCache;
use tower_throttle::{
    BreakerState, FailureMode, HOUR, Limit, Limiter, MINUTE, Outcome, Penalty, Policy,
    RateLimitLayer, RequestHead, ResponseBody, SECOND, StoreErrorKind,
};

use super::gate::Gate;
use super::late::{LATE, Late};
use super::places::{EVERYBODY, LIFE, POLICY, come_to, in_time, in_use, patient, policy, until};
use super::watched::Watched;
use support::asked::decision;
use support::redis::Server;

type Body = Full<Bytes>;

/// A request through the layer. The body of its response is kept.
async fn request(limiter: &Limiter) -> Response<ResponseBody<Body>> {
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) });
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let response = service.oneshot(Request::new(Body::default())).await;
    response.unwrap()
}

fn one() -> Policy {
    policy(Limit::concurrency(1).lease(LIFE))
}

/// One place whose lease lapses in no test.
fn one_for_long() -> Policy {
    policy(Limit::concurrency(1).lease(HOUR))
}

/// A limiter of one place, over a store that can be made to fail.
fn watched(mode: FailureMode) -> (Watched, Limiter) {
    let store = Watched::new();
    let policy = one().on_store_failure(mode);
    (store.clone(), patient(store, [policy]))
}

/// A limiter of one place behind a closed gate, and its server, which knows the script.
async fn behind_a_gate(timeout: Duration, mode: FailureMode) -> (Server, Gate, Limiter) {
    let server = Server::start();
    let gate = Gate::to(server.port()).await;
    let store = tower_throttle::RedisStore::connect(&gate.url())
        .await
        .unwrap();
    let opening = patient(store.clone(), [one_for_long()]);
    drop(opening.admit(POLICY, EVERYBODY).await.unwrap());
    until("the place is free", async || server.keys().is_empty()).await;
    gate.close();
    let policy = one_for_long().on_store_failure(mode);
    let limiter = Limiter::builder(store, [policy]).timeout(timeout);
    (server, gate, limiter.build().unwrap())
}

#[tokio::test]
async fn a_request_dropped_before_its_answer_arrives_ends_its_lease() {
    let (server, gate, limiter) = behind_a_gate(60 * SECOND, FailureMode::Deny).await;
    let mut asking = Box::pin(request(&limiter));
    assert!(poll!(&mut asking).is_pending());
    until("it is taken", async || !server.keys().is_empty()).await;
    drop(asking);
    gate.open();
    until("it is given back", async || server.keys().is_empty()).await;
}

#[tokio::test]
async fn a_request_dropped_without_answer_ends_its_lease() {
    let (server, _gate, limiter) =
        behind_a_gate(Duration::from_millis(20), FailureMode::Deny).await;
    let commands = server.calls("evalsha");
    assert!(poll!(Box::pin(request(&limiter))).is_pending());
    until("taken and given back", async || {
        server.calls("evalsha") >= commands + 2 && server.keys().is_empty()
    })
    .await;
}

/// It has asked nothing before.
#[tokio::test(start_paused = true)]
async fn a_request_dropped_before_it_is_polled_gives_nothing_back() {
    let (store, limiter) = watched(FailureMode::Deny);
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) });
    let mut service = RateLimitLayer::new(limiter).wrap_body().layer(inner);
    let ready = ServiceExt::<Request<Body>>::ready(&mut service).await;
    drop(ready.unwrap().call(Request::new(Body::default())));
    sleep(2 * LIFE).await;
    assert_eq!(store.released(), [0; 0]);
}

#[tokio::test]
async fn a_decision_that_comes_too_late_ends_the_lease_it_took() {
    for (mode, status) in [(FailureMode::Allow, 200), (FailureMode::Deny, 503)] {
        let (server, _gate, limiter) = behind_a_gate(Duration::from_millis(20), mode).await;
        let commands = server.calls("evalsha");
        let response = request(&limiter).await;
        assert_eq!(response.status(), status);
        until(
            "taken and given back, while the response is there",
            async || server.calls("evalsha") == commands + 2 && server.keys().is_empty(),
        )
        .await;
        drop(response);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_acquired_after_its_release_is_ended() {
    for (mode, status) in [
        (FailureMode::Allow, 200),
        (FailureMode::Deny, 503),
        (FailureMode::Local { share: 1.0 }, 200),
    ] {
        let store = Arc::new(Late::new());
        let policy = one_for_long().on_store_failure(mode);
        let hasty = Limiter::builder(Arc::clone(&store), [policy]);
        let hasty = hasty.timeout(LATE / 2).build().unwrap();
        assert_eq!(request(&hasty).await.status(), status);
        let limiter = patient(store, [one_for_long()]);
        sleep(LATE).await;
        assert_eq!(in_use(&limiter).await, 1, "{mode:?}");
        come_to(&limiter, 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_a_request_holds_and_returns_nothing() {
    let (store, limiter) = watched(FailureMode::Allow);
    store.fail(StoreErrorKind::Unreachable);
    let responses = [request(&limiter).await, request(&limiter).await];
    assert!(responses.iter().all(|response| response.status() == 200));
    store.work();
    sleep(10 * LIFE).await;
    assert_eq!(store.renewed(), [0; 0]);
    drop(responses);
    sleep(10 * LIFE).await;
    assert_eq!(store.released(), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_free_request_holds_nothing_and_gives_nothing_back() {
    let store = Watched::new();
    let limiter = patient(store.clone(), [one().cost_by(|_: &RequestHead<'_>| 0)]);
    let response = request(&limiter).await;
    assert_eq!(response.status(), 200);
    assert_eq!(in_use(&limiter).await, 0);
    sleep(10 * LIFE).await;
    assert_eq!(store.renewed(), [0; 0]);
    drop(response);
    sleep(10 * LIFE).await;
    assert_eq!(store.released(), [0; 0]);
}

/// The store's clock stands still: nothing lapses.
#[tokio::test(start_paused = true)]
async fn a_lease_the_store_did_not_end_is_ended_when_it_answers() {
    // So long that the circuit breaker opens and probes between the first try and the last.
    let life = 30 * SECOND;
    let store = Watched::new();
    let one = policy(Limit::concurrency(1).lease(life));
    let limiter = patient(store.clone(), [one]);
    let response = request(&limiter).await;
    store.fail(StoreErrorKind::Unreachable);
    drop(response);
    sleep(life / 2).await;
    assert_ne!(limiter.breaker_state(), BreakerState::Closed);
    store.work();
    assert_eq!(in_use(&limiter).await, 1);
    let answers_again = Instant::now();
    come_to(&limiter, 0).await;
    assert!(answers_again.elapsed() <= life / 12 + Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn a_gone_store_is_not_asked_for_longer_than_the_lease_lives() {
    let (store, limiter) = watched(FailureMode::Deny);
    let response = request(&limiter).await;
    // A failure that the circuit breaker ignores: otherwise it would keep some tries from the
    // store.
    store.fail(StoreErrorKind::Overloaded);
    drop(response);
    sleep(LIFE).await;
    assert_eq!(store.released(), [1; 12]);
    sleep(10 * LIFE).await;
    assert_eq!(store.released(), [0; 0]);
}

/// Places, and requests a minute.
fn places_and_rate(places: u64, requests: u64) -> [Policy; 2] {
    [
        policy(Limit::concurrency(places).lease(LIFE)),
        Policy::new("rate", Limit::gcra(requests, MINUTE))
            .by(|_: &RequestHead<'_>| Some(EVERYBODY)),
    ]
}

/// A limiter of places and of requests a minute.
fn both(places: u64, requests: u64) -> (Watched, Limiter) {
    let store = Watched::new();
    (
        store.clone(),
        patient(store, places_and_rate(places, requests)),
    )
}

/// A limiter with these policies that remembers denials for as long as they last.
fn remembering(policies: impl IntoIterator<Item = Policy>) -> (Watched, Limiter) {
    let store = Watched::new();
    let cache = DenyCache::new(store.clone()).max_age(HOUR);
    let cache = cache.clock_for_tests(store.clock().clone());
    (store, patient(cache, policies))
}

async fn remaining(limiter: &Limiter, policy: &str) -> u64 {
    limiter.peek(policy, EVERYBODY).await.unwrap().remaining()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_another_policy_denies_holds_nothing() {
    let (store, limiter) = both(3, 2);
    let running = [request(&limiter).await, request(&limiter).await];
    assert_eq!(in_use(&limiter).await, 2);
    let denied = request(&limiter).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(in_use(&limiter).await, 2);
    drop(denied);
    assert_eq!(store.released(), [0; 0], "nothing was taken");
    drop(running);
    come_to(&limiter, 0).await;
}

/// The store has let it in by then, and nobody knows.
#[tokio::test(start_paused = true)]
async fn a_place_without_answer_comes_back_beside_a_remembered_denial() {
    let (store, limiter) = remembering(places_and_rate(3, 1));
    store.answer_after(HOUR);
    let mut unanswered = Box::pin(request(&limiter));
    assert!(poll!(&mut unanswered).is_pending());
    store.answer_after(Duration::ZERO);
    assert_eq!(request(&limiter).await.status(), 429);
    assert_eq!(in_use(&limiter).await, 1);
    assert_eq!(unanswered.await.status(), 429, "as was learned meanwhile");
    come_to(&limiter, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_place_without_answer_comes_back_during_a_remembered_ban() {
    let (store, limiter) = remembering([one().penalty(Penalty::after(1, MINUTE, MINUTE))]);
    store.answer_after(HOUR);
    let mut unanswered = Box::pin(limiter.admit(POLICY, EVERYBODY));
    assert!(poll!(&mut unanswered).is_pending());
    store.answer_after(Duration::ZERO);
    for _ in 0..2 {
        let banned = limiter.admit(POLICY, EVERYBODY).await;
        assert_eq!(decision(&banned).outcome(), Outcome::Banned);
    }
    let held = unanswered.await;
    assert_eq!(decision(&held).outcome(), Outcome::Banned);
    until("released", async || store.released() == [1]).await;
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_place_are_not_charged_by_others() {
    let (_, limiter) = both(1, 5);
    let running = request(&limiter).await;
    assert_eq!(request(&limiter).await.status(), 429);
    assert_eq!(remaining(&limiter, "rate").await, 4);
    drop(running);
    come_to(&limiter, 0).await;
    assert_eq!(remaining(&limiter, "rate").await, 4, "a request that ran");
}

/// A place may be free at any moment, but not before the minute is over may the request pass. The
/// lease, which lapses later, is waited for by nobody.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_place_gets_the_wait_of_others() {
    let [_, rate] = places_and_rate(1, 1);
    let limiter = patient(Watched::new(), [one_for_long(), rate]);
    let running = request(&limiter).await;
    assert_eq!(running.status(), 200);
    let denied = request(&limiter).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["retry-after"], "60");
}

#[tokio::test(start_paused = true)]
async fn leaving_while_delayed_frees_the_place() {
    let store = Watched::new();
    let policies = [
        one(),
        Policy::new("rate", Limit::gcra(1, MINUTE).burst(1)).max_wait(MINUTE),
    ];
    let limiter = patient(store.clone(), policies);
    drop(request(&limiter).await);
    come_to(&limiter, 0).await;
    let held_up = tokio::spawn({
        let limiter = limiter.clone();
        async move { request(&limiter).await }
    });
    come_to(&limiter, 1).await;
    // It is renewed while it waits, too.
    sleep(2 * LIFE).await;
    assert!(!store.renewed().is_empty());
    held_up.abort();
    come_to(&limiter, 0).await;
}

#[tokio::test(start_paused = true)]
async fn outside_http_a_permit_holds_what_it_was_given() {
    let (store, limiter) = watched(FailureMode::Allow);
    let held = limiter.admit(POLICY, EVERYBODY).await.unwrap();
    let denied = limiter.admit(POLICY, EVERYBODY).await;
    assert_eq!(decision(&denied).outcome(), Outcome::Denied);
    assert_eq!(decision(&denied).retry_after(), Some(LIFE));
    drop(denied);
    assert_eq!(in_use(&limiter).await, 1, "a denial holds nothing");
    drop(held);
    come_to(&limiter, 0).await;
    store.released();

    store.fail(StoreErrorKind::Unreachable);
    let passed = limiter.admit(POLICY, EVERYBODY).await;
    assert!(passed.is_ok());
    drop(passed);
    sleep(LIFE).await;
    assert_eq!(store.released(), [0; 0]);
}

#[tokio::test]
async fn a_permit_dropped_outside_any_runtime_gives_its_place_back() {
    let server = Server::start();
    let limiter = patient(server.store().await, [one_for_long()]);
    let held = limiter.admit(POLICY, EVERYBODY).await.unwrap();
    let dropped = tokio::task::spawn_blocking(|| std::thread::spawn(|| drop(held)).join());
    dropped.await.unwrap().unwrap();
    in_time(come_to(&limiter, 0)).await;
}
