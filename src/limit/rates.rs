//! `Rates`: one or more rates, each a number of permits in a period.

use std::fmt;
use std::time::Duration;

use super::Limit;

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
    pub(super) permits: u32,
    pub(super) period: Duration,
    pub(super) burst: Option<u32>,
}

const UNSAID: Said = Said {
    permits: 0,
    period: Duration::ZERO,
    burst: None,
};

impl Rates {
    pub(super) const fn one(permits: u32, period: Duration) -> Self {
        let none = Self {
            said: [UNSAID; MOST_RATES],
            count: 0,
        };
        none.and(permits, period)
    }

    const fn only(rate: Said) -> Self {
        let mut rates = Self::one(rate.permits, rate.period);
        rates.said[0] = rate;
        rates
    }

    const fn and(mut self, permits: u32, period: Duration) -> Self {
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
    pub(super) const fn burst(mut self, permits: u32) -> Self {
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

    pub(super) fn are_several(&self) -> bool {
        self.count > 1
    }
}

impl Limit {
    /// Adds a rate that has to hold as well: `limit` permits in each `period`. A request takes its
    /// permits under all rates, or under none.
    ///
    /// ```
    /// use tower_throttle::{DAY, HOUR, Limit, SECOND};
    ///
    /// let limit = Limit::gcra(10, SECOND).and(1_000, HOUR).and(5_000, DAY);
    /// assert_eq!(limit.to_string(), "10 in 1 s and 1000 in 1 h and 5000 in 1 d");
    /// ```
    ///
    /// For [`gcra`](Self::gcra), [`fixed_window`](Self::fixed_window),
    /// [`sliding_counter`](Self::sliding_counter), [`sliding_window`](Self::sliding_window) and
    /// [`sliding_log`](Self::sliding_log): at most four rates, each of another period, and a
    /// shorter one with fewer permits. [`aligned`](Self::aligned) and [`slices`](Self::slices) hold
    /// for all rates, wherever they are said; [`burst`](Self::burst) for the one said last.
    ///
    /// What was used under the first rate is known by the policy's name alone, so that a limit of
    /// one rate can get others later; under each of the others, by its period too. So the others
    /// can be added, taken away and put in another order, and their numbers changed, and nothing
    /// that was used is forgotten.
    #[must_use]
    pub const fn and(mut self, limit: u32, period: Duration) -> Self {
        self.rates = self.rates.and(limit, period);
        self
    }

    /// Each of the rates as a limit by itself.
    ///
    /// ```
    /// use tower_throttle::{HOUR, Limit, SECOND};
    ///
    /// let limit = Limit::sliding_log(10, SECOND).and(1_000, HOUR);
    /// let alone = [Limit::sliding_log(10, SECOND), Limit::sliding_log(1_000, HOUR)];
    /// assert!(limit.rates().eq(alone));
    /// ```
    pub fn rates(&self) -> impl Iterator<Item = Limit> + use<> {
        let limit = *self;
        let each = limit.rates.said.into_iter().take(limit.rates.count);
        each.map(move |rate| limit.of_only(rate))
    }

    pub(super) fn of_only(self, rate: Said) -> Self {
        Self {
            rates: Rates::only(rate),
            ..self
        }
    }
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{HOUR, SECOND};

    #[test]
    fn rates_can_be_kept_when_their_limit_is_gone() {
        let rates = Limit::sliding_log(10, SECOND).and(1_000, HOUR).rates();
        assert_eq!(rates.count(), 2);
    }

    #[test]
    fn burst_applies_to_the_latest_rate() {
        let limit = Limit::gcra(10, SECOND).burst(20).and(1_000, HOUR).burst(30);
        let alone = [
            Limit::gcra(10, SECOND).burst(20),
            Limit::gcra(1_000, HOUR).burst(30),
        ];
        assert!(limit.rates().eq(alone));
    }
}
