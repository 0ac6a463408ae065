//! The limits that are compared: ten requests a second by each algorithm.

use std::time::Duration;

use tower_throttle::{Limit, SECOND, per_second};

/// The requests that a second may have.
pub(crate) const PERMITS: u64 = 10;

/// The duration of a request, which matters for `concurrency` only.
pub(crate) const UNDER_WAY: Duration = Duration::from_millis(500);

pub(crate) struct Named {
    /// The constructor's.
    pub(crate) name: &'static str,
    pub(crate) setting: &'static str,
    pub(crate) limit: Limit,
}

const fn named(name: &'static str, limit: Limit, setting: &'static str) -> Named {
    Named {
        name,
        setting,
        limit,
    }
}

pub(crate) const LIMITS: [Named; 8] = [
    named(
        "fixed_window",
        Limit::fixed_window(PERMITS, SECOND).aligned(),
        "10 a second, aligned",
    ),
    named(
        "sliding_counter",
        Limit::sliding_counter(PERMITS, SECOND),
        "10 a second",
    ),
    named(
        "sliding_window",
        Limit::sliding_window(PERMITS, SECOND),
        "10 a second, 10 slices",
    ),
    named(
        "sliding_log",
        Limit::sliding_log(PERMITS, SECOND),
        "10 a second",
    ),
    named(
        "token_bucket",
        Limit::token_bucket(PERMITS, per_second(PERMITS)),
        "holds 10, 10 a second",
    ),
    named(
        "gcra",
        Limit::gcra(PERMITS, SECOND).burst(5),
        "10 a second, burst of 5",
    ),
    named(
        "leaky_bucket",
        Limit::leaky_bucket(PERMITS, per_second(PERMITS)),
        "queue of 10, 10 a second",
    ),
    named(
        "concurrency",
        Limit::concurrency(5),
        "5 at once, each 0.5 s",
    ),
];
