//! Places that are held when an outage begins, and places that are taken during one.

use std::time::Duration;

use tower_throttle::{
    BreakerState, FailureMode, HOUR, Limit, Limiter, Permit, Policy, RedisStore, SECOND,
};

use super::{back, open, until};
use support::asked::decision;
use support::proxy::{Proxy, Way};
use support::redis::Server;

/// Ten places, of which this process may give five by itself. A lease lapses in no test, while
/// failures are retried after a second, and then every few seconds.
fn places(life: Duration) -> Policy {
    Policy::new("places", Limit::concurrency(10).lease(life))
        .on_store_failure(FailureMode::Local { share: 0.5 })
}

async fn limiter(server: &Server, life: Duration) -> Limiter {
    let limiter = Limiter::new(server.store().await, [places(life)]).unwrap();
    back(&limiter, "places").await;
    limiter
}

async fn admit(limiter: &Limiter) -> Permit {
    limiter.admit("places", "alice").await.unwrap()
}

async fn free(limiter: &Limiter) -> u64 {
    limiter.peek("places", "alice").await.unwrap().remaining()
}

#[tokio::test]
async fn places_given_back_in_an_outage_are_free_after_it() {
    let server = Server::start();
    let limiter = limiter(&server, 60 * SECOND).await;
    let before = [admit(&limiter).await, admit(&limiter).await];
    server.signal("STOP");
    open(&limiter, "places").await;
    drop(before);
    tokio::time::sleep(SECOND / 10).await;
    assert_ne!(limiter.breaker_state(), BreakerState::Closed);
    server.signal("CONT");
    back(&limiter, "places").await;
    until("they are free", async || free(&limiter).await == 10).await;
}

#[tokio::test]
async fn places_of_an_outage_are_free_when_given_back() {
    let server = Server::start();
    let limiter = limiter(&server, HOUR).await;
    server.signal("STOP");
    open(&limiter, "places").await;
    let mut during = Vec::new();
    for _ in 0..5 {
        during.push(admit(&limiter).await);
    }
    let full = limiter.admit("places", "alice").await;
    assert!(full.is_err() && decision(&full).is_local());
    drop((full, during.pop()));
    during.push(admit(&limiter).await);

    server.signal("CONT");
    back(&limiter, "places").await;
    // What a late answer, or a probe, has left in the store is given back there as well.
    until("the store holds none", async || free(&limiter).await == 10).await;
    drop(during);
    server.signal("STOP");
    open(&limiter, "places").await;
    assert_eq!(
        free(&limiter).await,
        5,
        "given back here, when the store was back"
    );
    server.signal("CONT");
}

/// When the server resumes, it executes what it was sent before it hung.
#[tokio::test]
async fn places_left_in_the_store_by_late_answers_are_given_back() {
    let server = Server::start();
    let limiter = limiter(&server, 60 * SECOND).await;
    server.signal("STOP");
    let mut during = Vec::new();
    for _ in 0..4 {
        let held = limiter.admit("places", "alice").await;
        assert!(decision(&held).is_local());
        during.push(held.unwrap());
    }
    open(&limiter, "places").await;
    // While the store is left alone.
    drop(during);
    server.signal("CONT");
    back(&limiter, "places").await;
    until("they are free", async || free(&limiter).await == 10).await;
}

/// For longer than a lease lives without renewal.
#[tokio::test]
async fn a_place_of_an_outage_is_held_as_long_as_needed() {
    let server = Server::start();
    // A busy machine may be late to renew it.
    let life = 5 * SECOND;
    let limiter = limiter(&server, life).await;
    server.signal("STOP");
    open(&limiter, "places").await;
    let held = admit(&limiter).await;
    tokio::time::sleep(life + SECOND).await;
    assert_eq!(free(&limiter).await, 4);
    drop(held);
    assert_eq!(free(&limiter).await, 5);
    server.signal("CONT");
}

/// A restart that follows: the server is there, and the circuit breaker is still open.
#[tokio::test]
async fn flushing_frees_places_for_the_next_process() {
    const PLACES: u64 = 20;
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let policy = Policy::new("places", Limit::concurrency(PLACES).lease(HOUR));
    // So long that a busy machine is in time.
    let limiter = Limiter::builder(store, [policy]).timeout(60 * SECOND);
    let limiter = limiter.build().unwrap();
    let mut held = Vec::new();
    for _ in 1..PLACES {
        held.push(admit(&limiter).await);
    }
    proxy.set(Way::Refuse);
    open(&limiter, "places").await;
    drop(held);
    let flush = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.flush().await }
    });
    tokio::time::sleep(SECOND / 10).await;
    assert!(!flush.is_finished());
    proxy.set(Way::Pass);
    assert!(flush.await.unwrap());
    assert_eq!(server.keys(), [""; 0]);
}
