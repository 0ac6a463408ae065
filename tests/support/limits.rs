//! A limit of each algorithm.

use std::time::Duration;

use tower_throttle::{Limit, Rate};

/// Limits whose permits come back with time: this many in each window, and at once.
pub fn in_time(permits: u64, window: Duration) -> [(&'static str, Limit); 8] {
    let rate = Rate::new(permits, window);
    [
        ("gcra", Limit::gcra(permits, window)),
        ("token_bucket", Limit::token_bucket(permits, rate)),
        (
            "leaky_bucket",
            Limit::leaky_bucket(permits, rate).without_delay(),
        ),
        ("fixed_window", Limit::fixed_window(permits, window)),
        (
            "aligned_window",
            Limit::fixed_window(permits, window).aligned(),
        ),
        ("sliding_log", Limit::sliding_log(permits, window)),
        ("sliding_window", Limit::sliding_window(permits, window)),
        ("sliding_counter", Limit::sliding_counter(permits, window)),
    ]
}

/// These, one that holds requests up, and one whose permits come back when their holder ends, or
/// lapse after this long.
pub fn every(permits: u64, window: Duration) -> Vec<(&'static str, Limit)> {
    let rate = Rate::new(permits, window);
    let others = [
        ("queue", Limit::leaky_bucket(permits, rate)),
        ("concurrency", Limit::concurrency(permits).lease(window)),
    ];
    in_time(permits, window).into_iter().chain(others).collect()
}
