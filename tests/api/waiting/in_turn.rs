//! One after the other: a caller that stops waiting has given back what it took by the time it asks
//! again.

use std::sync::Arc;

use tokio::sync::Notify;
use tower_throttle::{DecisionEvent, HOUR, Limit, Policy, per_hour};

use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    who_gives_up_waiting_does_not_wait_behind_itself
}

async fn who_gives_up_waiting_does_not_wait_behind_itself(bench: &Bench) {
    let told = Arc::new(Notify::new());
    let tells = Arc::clone(&told);
    let policy = Policy::new("orders", Limit::token_bucket(1, per_hour(1)));
    let limiter = bench
        .builder([policy])
        .on_decision(move |event: &DecisionEvent<'_>| {
            if !event.decision.delay().is_zero() {
                tells.notify_one();
            }
        });
    let limiter = limiter.build().unwrap();
    // What is there, and what the next one has to wait for.
    let first = limiter.acquire("orders", "us", 2).await;
    assert!(first.is_ok());
    for _ in 0..10 {
        tokio::select! {
            biased;
            _ = limiter.acquire("orders", "us", 1) => panic!("it is an hour until then"),
            () = told.notified() => {}
        }
        let looked = limiter.peek("orders", "us").await.unwrap();
        assert_eq!(looked.reset_after(), 2 * HOUR);
    }
}
