//! The last hour by the minute, which the process keeps whether a page is open or not.

use serde_json::{Value, json};
use tower_throttle::{
    AccessList, FailureMode, HOUR, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Micros, Mode,
    Operator, PeerAddr, Policy,
};

use crate::{Site, status_from, unreachable};

const OUTCOMES: [&str; 5] = ["allowed", "denied", "shadow_denied", "failed", "refused"];

/// What was decided in the last minutes, each outcome by the minute.
async fn last(site: &Site, minutes: usize) -> [Vec<u64>; 5] {
    let history = site.state().await["history"].take();
    OUTCOMES.map(|outcome| {
        let counts = history[outcome].as_array().unwrap();
        let counts = counts.iter().map(|count| count.as_u64().unwrap());
        counts
            .skip(history[outcome].as_array().unwrap().len() - minutes)
            .collect()
    })
}

#[tokio::test]
async fn each_minute_has_what_was_decided_in_it_by_outcome() {
    // On the minute.
    let clock = ManualClock::at(Micros::new(1_800_000_000_000_000));
    let operator = Operator::new().clock(clock.clone());
    let once = |name| Policy::new(name, Limit::sliding_log(1, HOUR));
    let policies = [once("api"), once("trial").mode(Mode::Shadow)];
    let limiter = Limiter::builder(MemoryStore::new(), policies)
        .observe(operator.clone())
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    assert_eq!(
        site.state().await["history"]["from_ms"],
        1_800_000_000_000_u64
    );
    for _ in 0..4 {
        let _ = site.limiter.check("api", "alice").await.unwrap();
    }
    clock.advance(2 * MINUTE);
    for _ in 0..3 {
        let _ = site.limiter.check("trial", "alice").await.unwrap();
    }
    let denied = AccessList::new()
        .addresses(PeerAddr, ["203.0.113.9"])
        .unwrap();
    site.limiter.set_denied(denied);
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
    let expected = [[1, 0, 1], [3, 0, 0], [0, 0, 2], [0, 0, 0], [0, 0, 1]];
    assert_eq!(last(&site, 3).await, expected.map(Vec::from));

    // An hour later none of it is left, and what is asked for then is in the last minute.
    clock.advance(HOUR);
    let _ = site.limiter.check("api", "bob").await.unwrap();
    let history = site.state().await["history"].take();
    assert_eq!(history["allowed"].as_array().unwrap().len(), 60);
    let sum = |outcome: &str| -> u64 {
        let counts = history[outcome].as_array().unwrap();
        counts.iter().filter_map(Value::as_u64).sum()
    };
    assert_eq!(OUTCOMES.map(sum), [1, 0, 0, 0, 0]);
    assert_eq!(history["allowed"][59], json!(1));
    let from_ms = 1_800_000_000_000_u64 + (62 - 59) * 60_000;
    assert_eq!(history["from_ms"], from_ms);
}

#[tokio::test]
async fn what_was_decided_without_the_store_is_in_the_history() {
    let operator = Operator::new().clock(ManualClock::new());
    let policies = [
        Policy::new("open", Limit::gcra(100, MINUTE)),
        Policy::new("closed", Limit::gcra(100, MINUTE)).on_store_failure(FailureMode::Deny),
    ];
    let limiter = Limiter::builder(unreachable(), policies)
        .observe(operator.clone())
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    for policy in ["open", "closed"] {
        let _ = site.limiter.check(policy, "alice").await.unwrap();
    }
    let [allowed, denied, _, failed, _] = last(&site, 1).await;
    assert_eq!([allowed, denied, failed], [[0], [0], [2]].map(Vec::from));
}
