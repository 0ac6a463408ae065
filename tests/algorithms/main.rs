//! What the algorithms promise, on every store, and the faults of other systems that ours must not
//! have: each test that excludes one is named after it.

use std::time::Duration;

use tower_throttle::{DAY, Limit, MINUTE, Rate, SECOND};

mod beyond_checking;
mod concurrency;
mod every_algorithm;
mod fixed_window;
mod gcra;
mod leaky_bucket;
mod penalty;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod token_bucket;
mod waiting;

#[path = "../support/mod.rs"]
mod support;

/// A limit of each algorithm. Those that share a key, as a fixed window and an aligned one do, find
/// each other's state there: by then it must not count any more.
fn every_algorithm(limit: u32, window: Duration) -> [Limit; 10] {
    let rate = Rate::new(limit, window);
    [
        Limit::gcra(limit, window),
        Limit::token_bucket(limit, rate),
        Limit::leaky_bucket(limit, rate),
        Limit::fixed_window(limit, window),
        Limit::sliding_log(limit, window),
        Limit::sliding_window(limit, window),
        Limit::sliding_counter(limit, window),
        Limit::concurrency(limit).lease(window),
        Limit::fixed_window(limit, window).aligned(),
        Limit::leaky_bucket(limit, rate).without_delay(),
    ]
}

/// From 1 a year to 10 million a second, and those that divide nothing evenly.
const RATES: [(u32, Duration); 10] = [
    (1, Duration::from_secs(365 * 86_400)),
    (7, MINUTE),
    (3, SECOND),
    (1, Duration::from_millis(1)),
    (999_983, DAY),
    (300_000, SECOND),
    (999_983, SECOND),
    (1_000_000, SECOND),
    (9_999_991, SECOND),
    (10_000_000, SECOND),
];
