//! An outage of the store, over real servers: the circuit breaker, the failure modes, the recovery.
#![cfg(all(feature = "deadpool", feature = "memory"))]

mod breaker;
mod idle;
mod leases;
mod modes;
mod notes;
mod routed;
mod runtimes;
mod standstill;
mod undriven;

use support::until::{GENEROUS, until};
use tower_throttle::{BreakerState, Limiter};

/// Asks until the store is left alone.
async fn open(limiter: &Limiter, policy: &str) {
    until("it opens", async || {
        let _ = limiter.peek(policy, "nobody").await.unwrap();
        limiter.breaker_state() == BreakerState::Open
    })
    .await;
}

/// Asks until the store answers again.
async fn back(limiter: &Limiter, policy: &str) {
    until("the store is back", async || {
        let answer = limiter.peek(policy, "nobody").await.unwrap();
        answer.store_failure().is_none()
    })
    .await;
}
