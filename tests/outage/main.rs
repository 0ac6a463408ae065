//! An outage of the store, over real servers: the circuit breaker, the failure modes, the way back.
#![cfg(all(feature = "memory", feature = "redis"))]

mod breaker;
mod idle;
mod leases;
mod modes;
mod notes;
mod standstill;
#[path = "../support/mod.rs"]
mod support;
mod undriven;

use std::time::{Duration, Instant};

use tower_throttle::{BreakerState, Limiter};

/// Far above what anything takes here.
const GENEROUS: Duration = Duration::from_secs(30);

/// Waits until it is so; how long that took.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < GENEROUS, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

/// Asks until the store is left alone.
async fn open(limiter: &Limiter, policy: &str) {
    until("it opens", async || {
        let _ = limiter.peek(policy, "nobody").await.unwrap();
        limiter.breaker() == BreakerState::Open
    })
    .await;
}

/// Asks until the store answers again; how long that took.
async fn back(limiter: &Limiter, policy: &str) -> Duration {
    until("the store is back", async || {
        let answer = limiter.peek(policy, "nobody").await.unwrap();
        answer.store_failure().is_none()
    })
    .await
}
