//! Limits of several rates: on every store, and over HTTP.

use std::time::Duration;

use tower_throttle::{Decision, Limit, Limiter};

mod changing;
mod layer;
mod operations;
mod promises;
mod waiting;
mod wrappers;

/// Limits of each algorithm that can have several rates, with these rates.
fn with_rates(first: (u64, Duration), others: &[(u64, Duration)]) -> [(&'static str, Limit); 6] {
    let (permits, period) = first;
    let one = [
        ("gcra", Limit::gcra(permits, period)),
        ("fixed_window", Limit::fixed_window(permits, period)),
        (
            "aligned_window",
            Limit::fixed_window(permits, period).aligned(),
        ),
        ("sliding_counter", Limit::sliding_counter(permits, period)),
        ("sliding_window", Limit::sliding_window(permits, period)),
        ("sliding_log", Limit::sliding_log(permits, period)),
    ];
    let with = |limit: Limit, rate: &(u64, Duration)| limit.and(rate.0, rate.1);
    one.map(|(name, limit)| (name, others.iter().fold(limit, with)))
}

async fn check(limiter: &Limiter, policy: &str) -> Decision {
    limiter.check(policy, "alice").await.unwrap()
}

/// Asks until it is denied. Returns how many permits were allowed.
async fn drain(limiter: &Limiter, policy: &str) -> u64 {
    let mut had = 0;
    while check(limiter, policy).await.is_allowed() {
        had += 1;
    }
    had
}
