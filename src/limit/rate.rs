//! `Rate`: a number of permits in a period, for the buckets. `Rates`: those of a limit.

use std::fmt;
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

/// The most rates of one limit. Each is a check of its own, and a question of this many does not
/// allocate.
pub(super) const MOST_RATES: usize = 4;

/// The rates of a limit, in the order in which they were given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    /// Places behind the last rate are [`UNSAID`].
    said: [Said; MOST_RATES],
    /// How many were given, which may be more than there is room for.
    count: usize,
}

/// One rate, as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) permits: u64,
    pub(super) period: Duration,
    pub(super) burst: Option<u64>,
}

const UNSAID: Said = Said {
    permits: 0,
    period: Duration::ZERO,
    burst: None,
};

impl Rates {
    pub(super) const fn one(permits: u64, period: Duration) -> Self {
        let none = Self {
            said: [UNSAID; MOST_RATES],
            count: 0,
        };
        none.and(permits, period)
    }

    pub(super) const fn only(rate: Said) -> Self {
        let mut rates = Self::one(rate.permits, rate.period);
        rates.said[0] = rate;
        rates
    }

    pub(super) const fn and(mut self, permits: u64, period: Duration) -> Self {
        if self.count < MOST_RATES {
            self.said[self.count] = Said {
                permits,
                period,
                burst: None,
            };
        }
        self.count = self.count.saturating_add(1);
        self
    }

    /// Sets the burst of the last rate.
    pub(super) const fn burst(mut self, permits: u64) -> Self {
        if self.count <= MOST_RATES {
            self.said[self.count - 1].burst = Some(permits);
        }
        self
    }

    pub(super) fn first(&self) -> &Said {
        &self.said[0]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Said> + Clone {
        self.said.iter().take(self.count)
    }

    /// How many were given, even if that is too many.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Those that there is room for.
    pub(super) fn given(self) -> impl Iterator<Item = Said> {
        self.said.into_iter().take(self.count)
    }

    pub(super) fn are_several(&self) -> bool {
        self.count > 1
    }
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
