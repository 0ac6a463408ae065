//! Validates the rates of a limit together.

use crate::error::ConfigError;
use crate::limit::rate::{MOST_RATES, Said};
use crate::limit::{Kind, Limit};

impl Limit {
    /// Refuses rates that make no sense together, even if each does by itself.
    pub(crate) fn refuse_rates_together(&self) -> Result<(), ConfigError> {
        if !self.rates.are_several() {
            return Ok(());
        }
        if !self.kind.is_some_and(Kind::is_said_as_rate) {
            return Err(ConfigError::not_for("and", SAID_AS_RATE));
        }
        if self.rates.count() > MOST_RATES {
            let count = format!("{} rates", self.rates.count());
            return Err(ConfigError::out_of_range("and", count, "at most 4 rates"));
        }
        let refuse = |rate: &Said, reason: String| {
            let alone = self.of_only(*rate);
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
                            "this many never fit beside {} in a longer period; a shorter period \
                             needs fewer permits",
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

impl Said {
    /// The most permits at once, for an algorithm that has no other word for it than burst.
    fn at_once(&self) -> u64 {
        self.burst.unwrap_or(self.permits)
    }

    /// Whether this rate denies nothing that the other would not deny: it gives as much in its
    /// period as the other gives in a longer one.
    fn is_idle_beside(&self, other: &Self) -> bool {
        self.period < other.period
            && self.permits >= other.permits
            && self.at_once() >= other.at_once()
    }
}

impl Kind {
    /// Whether its limits are stated as permits in a period, with nothing else that each rate would
    /// need of its own.
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
            // It spaces requests out, which the hourly rate does not.
            Limit::gcra(100, SECOND).burst(1).and(50, HOUR),
        ] {
            assert_eq!(limit.refuse_rates_together(), Ok(()), "{limit}");
        }
    }

    #[test]
    fn limits_of_other_algorithms_may_not_have_several_rates() {
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
        for more in 2..=6 {
            limit = limit.and(more.into(), more * SECOND);
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
                "and: got \"100 in 1 s\": this many never fit beside 50 in a longer period; a \
                 shorter period needs fewer permits"
            );
        }
    }
}
