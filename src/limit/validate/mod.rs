//! Validates a limit: every number in its range, every option one of its algorithm's.

use std::time::Duration;

use super::{DEFAULT_SLICES, Kind, Limit, MOST_PERMITS, Words};
use crate::error::ConfigError;
use crate::time::{DAY, Micros, SECOND};

mod together;

/// A validated limit, from which the algorithms are built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValidLimit {
    pub(crate) kind: Kind,
    pub(crate) permits: u64,
    /// The period or window; for concurrency, the life of a lease.
    pub(crate) period: Micros,
    /// The most permits at once.
    pub(crate) capacity: u64,
    pub(crate) aligned: bool,
    pub(crate) slices: u32,
    /// Whether a leaky bucket is a queue.
    pub(crate) queues: bool,
}

impl ValidLimit {
    /// One of a kind with no number in particular.
    pub(crate) fn smallest(kind: Kind) -> Self {
        Self {
            kind,
            permits: 1,
            period: SECOND.into(),
            capacity: 1,
            aligned: false,
            slices: 1,
            queues: true,
        }
    }
}

impl Limit {
    /// Checks every field and every combination of a limit of one rate.
    pub(crate) fn valid(&self) -> Result<ValidLimit, ConfigError> {
        self.refuse_options_of_others()?;
        self.refuse_rates_together()?;
        let Some(kind) = self.kind else {
            let reason = "the limiter denies by itself and asks no store, so there is no algorithm";
            return Err(ConfigError::malformed("limit", self.to_string(), reason));
        };
        if self.rates.are_several() {
            let reason = "expected one rate; see `Limit::rates`";
            return Err(ConfigError::malformed("limit", self.to_string(), reason));
        }
        let rate = self.rates.first();
        if !(1..=MOST_PERMITS).contains(&rate.permits) {
            return Err(ConfigError::out_of_range(
                "limit",
                rate.permits,
                ANY_PERMITS,
            ));
        }
        let period = self.lease.unwrap_or(rate.period);
        let period = validate_time(kind.name_of_length(), period)?;
        if kind.is_debt() && rate.permits > most_in(period) {
            let (permits, period) = (rate.permits, Words(rate.period));
            return Err(ConfigError::out_of_range(
                "limit",
                format_args!("{permits} in {period}"),
                MOST_RATE,
            ));
        }
        Ok(ValidLimit {
            kind,
            permits: rate.permits,
            period,
            capacity: self.validate_capacity()?,
            aligned: self.aligned,
            slices: self.validate_slices()?,
            queues: !self.without_delay,
        })
    }

    /// Whether its rate is one of no permits, which only the configuration file may write.
    #[cfg(feature = "config")]
    pub(crate) fn has_no_permits(&self) -> bool {
        !self.rates.are_several() && self.rates.first().permits == 0
    }

    /// Whether it admits nothing, whatever the state.
    pub(crate) fn is_nothing(&self) -> bool {
        self.kind.is_none()
    }

    pub(crate) fn refuse_options_of_others(&self) -> Result<(), ConfigError> {
        for (given, option, kind, name) in [
            (self.has_burst(), "burst", Kind::Gcra, "gcra"),
            (self.aligned, "aligned", Kind::FixedWindow, "fixed_window"),
            (
                self.slices.is_some(),
                "slices",
                Kind::SlidingWindow,
                "sliding_window",
            ),
            (
                self.without_delay,
                "without_delay",
                Kind::LeakyBucket,
                "leaky_bucket",
            ),
            (
                self.lease.is_some(),
                "lease",
                Kind::Concurrency,
                "concurrency",
            ),
        ] {
            if given && self.kind != Some(kind) {
                return Err(ConfigError::not_for(option, name));
            }
        }
        Ok(())
    }

    fn has_burst(&self) -> bool {
        self.rates.iter().any(|rate| rate.burst.is_some())
    }

    fn validate_capacity(&self) -> Result<u64, ConfigError> {
        let rate = self.rates.first();
        let (field, given) = match self.kind {
            Some(Kind::Gcra) => ("burst", rate.burst),
            _ => ("capacity", self.capacity),
        };
        let Some(capacity) = given else {
            return Ok(rate.permits);
        };
        if !(1..=MOST_PERMITS).contains(&capacity) {
            return Err(ConfigError::out_of_range(field, capacity, ANY_PERMITS));
        }
        if capacity > most_capacity(rate.permits, rate.period.into()) {
            return Err(ConfigError::out_of_range(
                field,
                capacity,
                "as many permits as come back within 100 years",
            ));
        }
        Ok(capacity)
    }

    fn validate_slices(&self) -> Result<u32, ConfigError> {
        match self.slices {
            None => Ok(DEFAULT_SLICES),
            Some(slices @ 1..=MOST_SLICES) => Ok(slices),
            Some(slices) => Err(ConfigError::out_of_range("slices", slices, "1 to 1000")),
        }
    }
}

impl Kind {
    /// Whether it counts the time in which permits come back, one by one.
    fn is_debt(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }

    /// The name of the field that holds the time.
    fn name_of_length(self) -> &'static str {
        match self {
            Self::Gcra | Self::TokenBucket | Self::LeakyBucket => "period",
            Self::FixedWindow | Self::SlidingLog | Self::SlidingWindow | Self::SlidingCounter => {
                "window"
            }
            Self::Concurrency => "lease",
        }
    }
}

/// The most permits at once: as many as come back within 100 years. This keeps every stored instant
/// below 2^53 microseconds, where a Lua number is exact.
pub(crate) fn most_capacity(permits: u64, period: Micros) -> u64 {
    let within = MAX_REFILL.as_micros() * u128::from(permits);
    let most = within / u128::from(period.get().max(1));
    u64::try_from(most).map_or(MOST_PERMITS, |most| most.clamp(1, MOST_PERMITS))
}

/// The most permits in a period, of an algorithm that counts the time each takes: of shorter times
/// the fixed-point number of microseconds tells too little.
fn most_in(period: Micros) -> u64 {
    period.get().saturating_mul(MOST_PERMITS_A_MICROSECOND)
}

/// A time for which all arithmetic is exact.
pub(crate) fn validate_time(field: &'static str, time: Duration) -> Result<Micros, ConfigError> {
    if time < MIN_PERIOD || time > MAX_PERIOD || !time.subsec_nanos().is_multiple_of(1_000) {
        return Err(ConfigError::out_of_range(
            field,
            format_args!("{time:?}"),
            "1 ms to 366 days, in whole microseconds",
        ));
    }
    Ok(time.into())
}

/// The configuration file has its own word for [`Limit::nothing`].
const ANY_PERMITS: &str = "1 to 999999999999999, or `Limit::nothing()`";
/// At this rate the interval of a permit is rounded by one part in four thousand.
const MOST_PERMITS_A_MICROSECOND: u64 = 1_000_000;
const MOST_RATE: &str = "at most 1000000000000 permits a second";
const MOST_SLICES: u32 = 1_000;
const MIN_PERIOD: Duration = Duration::from_millis(1);
const MAX_PERIOD: Duration = Duration::from_secs(366 * DAY.as_secs());
const MAX_REFILL: Duration = Duration::from_secs(100 * 366 * DAY.as_secs());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{ANY_COST, Rate};

    fn refusal(limit: Limit) -> String {
        limit.valid().unwrap_err().to_string()
    }

    #[test]
    fn the_whole_documented_range_is_accepted() {
        for limit in [
            Limit::gcra(1, 366 * DAY),
            Limit::gcra(1_000_000_000, Duration::from_millis(1)),
            Limit::gcra(MOST_PERMITS, 1_000 * SECOND),
            Limit::gcra(1, 366 * DAY).burst(100),
            Limit::fixed_window(MOST_PERMITS, 366 * DAY).aligned(),
            Limit::fixed_window(MOST_PERMITS, Duration::from_millis(1)),
            Limit::concurrency(MOST_PERMITS),
            Limit::sliding_log(1, Duration::from_millis(1)),
        ] {
            assert!(limit.valid().is_ok(), "{limit:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_field_the_input_and_what_would_be_right() {
        assert_eq!(
            refusal(Limit::gcra(0, SECOND)),
            "limit: got 0, expected 1 to 999999999999999, or `Limit::nothing()`"
        );
        assert_eq!(
            refusal(Limit::fixed_window(MOST_PERMITS + 1, SECOND)),
            "limit: got 1000000000000000, expected 1 to 999999999999999, or `Limit::nothing()`"
        );
        assert_eq!(
            refusal(Limit::gcra(1, SECOND).burst(u64::MAX)),
            "burst: got 18446744073709551615, expected 1 to 999999999999999, or `Limit::nothing()`"
        );
        assert_eq!(
            refusal(Limit::token_bucket(1, Rate::new(MOST_PERMITS, SECOND))),
            "limit: got 999999999999999 in 1 s, expected at most 1000000000000 permits a second"
        );
        assert_eq!(
            refusal(Limit::gcra(1, SECOND).burst(0)),
            "burst: got 0, expected 1 to 999999999999999, or `Limit::nothing()`"
        );
        assert_eq!(
            refusal(Limit::fixed_window(1, Duration::from_micros(999))),
            "window: got 999µs, expected 1 ms to 366 days, in whole microseconds"
        );
    }

    #[test]
    fn what_errors_call_the_range_is_the_range() {
        let range = format!("1 to {MOST_PERMITS}");
        assert_eq!(ANY_COST, range);
        assert_eq!(ANY_PERMITS, format!("{range}, or `Limit::nothing()`"));
    }

    #[test]
    fn a_window_outside_the_range_or_finer_than_a_microsecond_is_refused() {
        for window in [
            Duration::ZERO,
            367 * DAY,
            SECOND + Duration::from_nanos(1),
            Duration::MAX,
        ] {
            assert!(refusal(Limit::sliding_log(1, window)).starts_with("window: "));
        }
    }

    #[test]
    fn an_option_of_another_algorithm_is_refused() {
        assert_eq!(
            refusal(Limit::sliding_log(1, SECOND).burst(2)),
            "burst: is an option of gcra"
        );
        assert_eq!(
            refusal(Limit::gcra(1, SECOND).aligned()),
            "aligned: is an option of fixed_window"
        );
        assert_eq!(
            refusal(Limit::gcra(1, SECOND).lease(Duration::ZERO)),
            "lease: is an option of concurrency"
        );
    }

    #[test]
    fn a_burst_that_takes_centuries_to_come_back_is_refused() {
        assert!(refusal(Limit::gcra(1, 366 * DAY).burst(101)).contains("100 years"));
    }
}
