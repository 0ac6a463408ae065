//! `Rates`: so many permits in so much time, said once or several times over.

use std::fmt;
use std::time::Duration;

use super::{Kind, Limit};
use crate::error::ConfigError;

/// The most rates of one limit: each is a check of its own, and a question of so many allocates
/// nothing.
const MOST_RATES: usize = 4;

/// The rates of a limit, in the order in which they were said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Rates {
    /// Those behind the last that was said are [`UNSAID`].
    said: [Said; MOST_RATES],
    /// How many were said, which may be more than there is room for.
    count: usize,
}

/// One rate, as it was said.
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

    /// Sets the burst of the rate that was said last.
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

    pub(super) fn are_several(&self) -> bool {
        self.count > 1
    }
}

impl Said {
    /// The most permits at once, of an algorithm that has no other word for it than burst.
    fn at_once(&self) -> u32 {
        self.burst.unwrap_or(self.permits)
    }

    /// Whether this one denies nothing that the other would not deny: all that the other gives in
    /// its longer time, this one gives in less.
    fn is_idle_beside(&self, other: &Self) -> bool {
        self.period < other.period
            && self.permits >= other.permits
            && self.at_once() >= other.at_once()
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
    pub fn rates(&self) -> impl Iterator<Item = Limit> {
        let limit = *self;
        let each = limit.rates.said.into_iter().take(limit.rates.count);
        each.map(move |rate| Limit {
            rates: Rates::only(rate),
            ..limit
        })
    }

    /// Refuses rates that make no sense together, whatever each is by itself.
    pub(crate) fn refuse_rates_together(&self) -> Result<(), ConfigError> {
        if !self.rates.are_several() {
            return Ok(());
        }
        if !self.kind.is_said_as_rate() {
            return Err(ConfigError::not_for("and", SAID_AS_RATE));
        }
        if self.rates.count > MOST_RATES {
            let count = format_args!("{} rates", self.rates.count);
            return Err(ConfigError::out_of_range("and", count, "at most 4 rates"));
        }
        let refuse = |rate: &Said, reason: String| {
            let alone = Limit {
                rates: Rates::only(*rate),
                ..*self
            };
            Err(ConfigError::malformed("and", alone.to_string(), reason))
        };
        let mut rest = self.rates.iter();
        while let Some(rate) = rest.next() {
            for other in rest.clone() {
                if rate.period == other.period {
                    let reason = "another rate has the same period; give each its own";
                    return refuse(other, reason.to_owned());
                }
                for (idle, other) in [(rate, other), (other, rate)] {
                    if idle.is_idle_beside(other) {
                        let reason = format!(
                            "so many never fit in its time beside {} in a longer one; a shorter \
                             time needs fewer permits",
                            other.permits
                        );
                        return refuse(idle, reason);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Kind {
    /// Whether a limit of it is said as permits in a time, and nothing else that each rate would
    /// need its own of.
    fn is_said_as_rate(self) -> bool {
        match self {
            Self::Gcra
            | Self::FixedWindow
            | Self::SlidingLog
            | Self::SlidingWindow
            | Self::SlidingCounter => true,
            Self::TokenBucket | Self::LeakyBucket | Self::Concurrency => false,
        }
    }
}

const SAID_AS_RATE: &str = "gcra, fixed_window, sliding_counter, sliding_window and sliding_log";

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{per_hour, per_second};
    use crate::time::{DAY, HOUR, MINUTE, SECOND};

    fn refusal(limit: Limit) -> String {
        limit.refuse_rates_together().unwrap_err().to_string()
    }

    #[test]
    fn four_rates_are_accepted_in_any_order() {
        for limit in [
            Limit::gcra(10, SECOND),
            Limit::gcra(10, SECOND).and(1_000, HOUR),
            Limit::gcra(1_000, HOUR).and(10, SECOND),
            Limit::gcra(10, SECOND)
                .and(100, MINUTE)
                .and(1_000, HOUR)
                .and(5_000, DAY),
            Limit::fixed_window(1, SECOND).and(2, MINUTE).aligned(),
            Limit::sliding_window(1, SECOND).slices(4).and(2, MINUTE),
            Limit::sliding_counter(1, SECOND).and(2, MINUTE),
            Limit::sliding_log(1, SECOND).and(2, MINUTE),
            // It spaces requests out, which the hour does not.
            Limit::gcra(100, SECOND).burst(1).and(50, HOUR),
        ] {
            assert_eq!(limit.refuse_rates_together(), Ok(()), "{limit}");
        }
    }

    #[test]
    fn a_burst_is_that_of_the_rate_said_last() {
        let limit = Limit::gcra(10, SECOND).burst(20).and(1_000, HOUR).burst(30);
        let alone = [
            Limit::gcra(10, SECOND).burst(20),
            Limit::gcra(1_000, HOUR).burst(30),
        ];
        assert!(limit.rates().eq(alone));
    }

    #[test]
    fn a_limit_that_is_said_otherwise_has_one_rate() {
        for limit in [
            Limit::token_bucket(10, per_second(1)),
            Limit::leaky_bucket(10, per_hour(1)),
            Limit::concurrency(10),
        ] {
            assert_eq!(
                refusal(limit.and(1_000, DAY)),
                "and: is an option of gcra, fixed_window, sliding_counter, sliding_window and \
                 sliding_log"
            );
        }
    }

    #[test]
    fn a_fifth_rate_is_refused_and_no_number_of_them_panics() {
        let mut limit = Limit::gcra(1, SECOND);
        for permits in 2..=6 {
            limit = limit.and(permits, permits * SECOND);
        }
        assert_eq!(
            refusal(limit.burst(3)),
            "and: got 6 rates, expected at most 4 rates"
        );
    }

    #[test]
    fn rates_that_make_no_sense_together_are_refused_in_words() {
        assert_eq!(
            refusal(Limit::gcra(1, SECOND).and(9, MINUTE).and(5, SECOND)),
            "and: got \"5 in 1 s\": another rate has the same period; give each its own"
        );
        for limit in [
            Limit::gcra(100, SECOND).and(50, HOUR),
            Limit::gcra(50, HOUR).and(100, SECOND),
        ] {
            assert_eq!(
                refusal(limit),
                "and: got \"100 in 1 s\": so many never fit in its time beside 50 in a longer one; \
                 a shorter time needs fewer permits"
            );
        }
    }
}
