//! `Rate`: a number of permits in a period, for the buckets. `Rates`: the rates of a limit.

use std::fmt;
use std::time::Duration;

use crate::time::{DAY, HOUR, MINUTE, SECOND};

/// A number of permits in a period: the rate that refills a [token
/// bucket](crate::Limit::token_bucket) or drains a [leaky bucket](crate::Limit::leaky_bucket).
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

/// `permits` each second.
pub const fn per_second(permits: u64) -> Rate {
    Rate::new(permits, SECOND)
}

/// `permits` each minute.
pub const fn per_minute(permits: u64) -> Rate {
    Rate::new(permits, MINUTE)
}

/// `permits` each hour.
pub const fn per_hour(permits: u64) -> Rate {
    Rate::new(permits, HOUR)
}

/// `permits` each day.
pub const fn per_day(permits: u64) -> Rate {
    Rate::new(permits, DAY)
}

/// The most rates of one limit. Each is one check, and a store call with this many checks does not
/// allocate.
pub(super) const MOST_RATES: usize = 4;

/// The rates of a limit, in the order in which they were given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    /// Entries after the last rate are [`UNSET`].
    slots: [GivenRate; MOST_RATES],
    /// The number of rates that were given, which may exceed [`MOST_RATES`].
    count: usize,
}

/// One rate, as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenRate {
    pub(super) permits: u64,
    pub(super) period: Duration,
    pub(super) burst: Option<u64>,
}

const UNSET: GivenRate = GivenRate {
    permits: 0,
    period: Duration::ZERO,
    burst: None,
};

impl Rates {
    pub(super) const fn one(permits: u64, period: Duration) -> Self {
        let none = Self {
            slots: [UNSET; MOST_RATES],
            count: 0,
        };
        none.and(permits, period)
    }

    pub(super) const fn only(rate: GivenRate) -> Self {
        let mut rates = Self::one(rate.permits, rate.period);
        rates.slots[0] = rate;
        rates
    }

    pub(super) const fn and(mut self, permits: u64, period: Duration) -> Self {
        if self.count < MOST_RATES {
            self.slots[self.count] = GivenRate {
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
            self.slots[self.count - 1].burst = Some(permits);
        }
        self
    }

    pub(super) fn first(&self) -> &GivenRate {
        &self.slots[0]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &GivenRate> + Clone {
        self.slots.iter().take(self.count)
    }

    /// The number of rates that were given, even if that is too many.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first [`MOST_RATES`] rates.
    pub(super) fn given(self) -> impl Iterator<Item = GivenRate> {
        self.slots.into_iter().take(self.count)
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
