//! nginx: `limit_req` and `limit_conn`.

use std::time::Duration;

use tower_throttle::{Limit, MINUTE, Policy, SECOND, per_second};

use super::{TENTH, admit_the_same, after, histories, theirs, waiting};
use support::bench::Bench;

#[tokio::test]
async fn nginx_without_delay() {
    for (limit, burst) in [
        (Limit::gcra(10, SECOND).burst(1), 0),
        (Limit::gcra(10, SECOND).burst(21), 20),
    ] {
        admit_the_same(limit, 1, || {
            let mut nginx = theirs::nginx(10, burst, burst);
            Box::new(move |now| nginx(now).is_some())
        })
        .await;
    }
}

#[tokio::test]
async fn nginx_with_burst_20_admits_21_at_once_and_then_one_each_interval() {
    for (limit, interval) in [
        // rate=10r/s
        (Limit::gcra(10, SECOND).burst(21), TENTH),
        // rate=30r/m
        (Limit::gcra(30, MINUTE).burst(21), 2 * SECOND),
    ] {
        let bench = Bench::memory();
        assert_eq!(bench.drain(limit, 1).await, 21);
        for _ in 0..20 {
            bench.advance(interval - Duration::from_millis(1));
            assert_eq!(bench.drain(limit, 1).await, 0);
            bench.advance(Duration::from_millis(1));
            assert_eq!(bench.drain(limit, 1).await, 1);
        }
        bench.advance(21 * interval);
        assert_eq!(bench.drain(limit, 1).await, 21, "all are back");
    }
}

/// Requests that wait leave when nginx would send them on.
#[tokio::test]
async fn nginx_with_delay() {
    let queue = Limit::leaky_bucket(21, per_second(10));
    let two_stages = Limit::gcra(10, SECOND).burst(9);
    for (limit, delay) in [(queue, 0), (two_stages, 8)] {
        for history in histories() {
            let (bench, mut nginx) = (Bench::memory(), theirs::nginx(10, 20, delay));
            for pause in history {
                let now = after(pause, &bench);
                let decision = match limit == queue {
                    true => bench.ask(limit, 1).await,
                    false => waiting(&bench, limit, 12 * TENTH).await,
                };
                let delay_ms = decision.delay().as_millis() as u64;
                assert_eq!(
                    decision.is_allowed().then_some(delay_ms),
                    nginx(now),
                    "{limit} at {now}"
                );
            }
        }
    }
}

/// nginx `limit_conn`, .NET's `ConcurrencyLimiter`.
#[tokio::test]
async fn five_at_the_same_time() {
    let limiter = Bench::memory().limiter([Policy::new("api", Limit::concurrency(5))]);
    let mut places = Vec::new();
    for _ in 0..5 {
        places.push(limiter.admit("api", "alice").await.unwrap());
    }
    assert!(limiter.admit("api", "alice").await.is_err());
    places.pop();
    assert!(limiter.flush().await);
    assert!(limiter.admit("api", "alice").await.is_ok());
}
