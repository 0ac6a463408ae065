//! The limits whose keys are measured: a thousand an hour by each algorithm.

use std::time::Duration;

use tower_throttle::{HOUR, Limit, per_hour};

const PERMITS: u64 = 1_000;

/// The time in which permits are taken, and in which none of them comes back.
pub(crate) const WINDOW: Duration = HOUR;

pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) limit: Limit,
    /// Whether a key takes more memory when more of its permits are in use.
    grows: bool,
}

/// How a key is used.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    pub(crate) says: &'static str,
    /// How often permits are taken, and how many each time.
    pub(crate) times: u64,
    pub(crate) cost: u64,
}

const fn used(says: &'static str, times: u64, cost: u64) -> Use {
    Use { says, times, cost }
}

const GROWING: [Use; 4] = [
    used("1", 1, 1),
    used("10", 10, 1),
    used("100", 100, 1),
    used("1000", 1_000, 1),
];

/// All permits, so that counts have as many digits as they can have.
const ANY: [Use; 1] = [used("any", 10, PERMITS / 10)];

impl Measured {
    const fn constant(name: &'static str, limit: Limit) -> Self {
        Self {
            name,
            limit,
            grows: false,
        }
    }

    const fn growing(name: &'static str, limit: Limit) -> Self {
        Self {
            name,
            limit,
            grows: true,
        }
    }

    pub(crate) fn uses(&self) -> impl Iterator<Item = Use> + use<> {
        let uses: &[Use] = if self.grows { &GROWING } else { &ANY };
        uses.iter().copied()
    }
}

pub(crate) const LIMITS: [Measured; 9] = [
    Measured::constant("gcra", Limit::gcra(PERMITS, WINDOW)),
    // The interval of a permit is not a whole number of microseconds, so its fraction is stored, too.
    Measured::constant("gcra, with a fraction", Limit::gcra(7 * PERMITS, WINDOW)),
    Measured::constant(
        "token_bucket",
        Limit::token_bucket(PERMITS, per_hour(PERMITS)),
    ),
    Measured::constant(
        "leaky_bucket",
        Limit::leaky_bucket(PERMITS, per_hour(PERMITS)),
    ),
    Measured::constant("fixed_window", Limit::fixed_window(PERMITS, WINDOW)),
    Measured::constant("sliding_counter", Limit::sliding_counter(PERMITS, WINDOW)),
    Measured::growing("sliding_window", Limit::sliding_window(PERMITS, WINDOW)),
    Measured::growing("sliding_log", Limit::sliding_log(PERMITS, WINDOW)),
    Measured::growing("concurrency", Limit::concurrency(PERMITS).lease(WINDOW)),
];
