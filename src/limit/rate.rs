//! `Rate`: a number of permits in a period, for the buckets.

use std::time::Duration;

use crate::time::{DAY, HOUR, MINUTE, SECOND};

/// So many permits in so much time: what fills a [token bucket](crate::Limit::token_bucket) and
/// drains a [leaky one](crate::Limit::leaky_bucket).
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{Rate, per_day, per_minute};
///
/// assert_eq!(per_minute(90), Rate::new(90, Duration::from_secs(60)));
/// assert_eq!(per_day(24), Rate::new(24, Duration::from_secs(24 * 60 * 60)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub(super) permits: u64,
    pub(super) period: Duration,
}

impl Rate {
    /// `permits` in each `period`.
    pub const fn new(permits: u64, period: Duration) -> Self {
        Self { permits, period }
    }
}

/// So many permits each second.
pub const fn per_second(permits: u64) -> Rate {
    Rate::new(permits, SECOND)
}

/// So many permits each minute.
pub const fn per_minute(permits: u64) -> Rate {
    Rate::new(permits, MINUTE)
}

/// So many permits each hour.
pub const fn per_hour(permits: u64) -> Rate {
    Rate::new(permits, HOUR)
}

/// So many permits each day.
pub const fn per_day(permits: u64) -> Rate {
    Rate::new(permits, DAY)
}
