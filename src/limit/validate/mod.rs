//! Validates a limit: every number is in range and every option belongs to the algorithm.

use std::time::Duration;

use super::rate::{GivenRate, MOST_RATES};
use super::{DEFAULT_SLICES, Kind, Limit, MOST_PERMITS, Schedule, Words};
use crate::error::ConfigError;
use crate::time::{DAY, Micros, SECOND};

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
    /// When windows begin, if a calendar says it.
    pub(crate) schedule: Option<&'static Schedule>,
    pub(crate) slices: u32,
    /// Whether a leaky bucket delays requests.
    pub(crate) queues: bool,
}

impl ValidLimit {
    /// A limit of this kind with the smallest numbers.
    pub(crate) fn smallest(kind: Kind) -> Self {
        Self {
            kind,
            permits: 1,
            period: SECOND.into(),
            capacity: 1,
            aligned: false,
            schedule: None,
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
            let reason =
                "it admits nothing and has no algorithm, deny the request without the store";
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
            schedule: (self.calendar.as_ref())
                .map(|calendar| calendar.schedule())
                .transpose()?,
            slices: self.validate_slices()?,
            queues: !self.without_delay,
        })
    }

    /// Whether its only rate has 0 permits, which only the configuration file accepts.
    #[cfg(feature = "config")]
    pub(crate) fn has_no_permits(&self) -> bool {
        !self.rates.are_several() && self.rates.first().permits == 0
    }

    /// Whether it is [`Limit::nothing`].
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
        if self.aligned && self.calendar.is_some() {
            return Err(ConfigError::not_for("aligned", "fixed_window"));
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
                "at most what refills within 100 years",
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
    /// Whether its state is a time of recovery, in which permits come back one by one.
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

/// The largest capacity: what refills within 100 years. This keeps every stored instant below 2^53
/// microseconds, where a Lua number is exact.
pub(crate) fn most_capacity(permits: u64, period: Micros) -> u64 {
    let within = MAX_REFILL.as_micros() * u128::from(permits);
    let most = within / u128::from(period.get().max(1));
    u64::try_from(most).map_or(MOST_PERMITS, |most| most.clamp(1, MOST_PERMITS))
}

/// The most permits in a period for algorithms that count the time for each permit: a fixed-point
/// number of microseconds is too coarse for shorter times.
fn most_in(period: Micros) -> u64 {
    period.get().saturating_mul(MOST_PERMITS_A_MICROSECOND)
}

/// Checks that a time is in the range for which all arithmetic is exact.
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

/// The configuration file has its own text, since it spells [`Limit::nothing`] differently.
const ANY_PERMITS: &str = "1 to 999999999999999, or `Limit::nothing()`";
/// At this rate the interval of a permit is rounded by one part in four thousand.
const MOST_PERMITS_A_MICROSECOND: u64 = 1_000_000;
const MOST_RATE: &str = "at most 1000000000000 permits a second";
const MOST_SLICES: u32 = 1_000;
const MIN_PERIOD: Duration = Duration::from_millis(1);
const MAX_PERIOD: Duration = Duration::from_secs(366 * DAY.as_secs());
const MAX_REFILL: Duration = Duration::from_secs(100 * 366 * DAY.as_secs());

impl Limit {
    /// Rejects rates that contradict each other, even if each is valid alone.
    pub(crate) fn refuse_rates_together(&self) -> Result<(), ConfigError> {
        if !self.rates.are_several() {
            return Ok(());
        }
        if !self.kind.is_some_and(Kind::takes_several_rates) || self.calendar.is_some() {
            return Err(ConfigError::not_for("and", TAKE_SEVERAL_RATES));
        }
        if self.rates.count() > MOST_RATES {
            let count = format!("{} rates", self.rates.count());
            return Err(ConfigError::out_of_range("and", count, "at most 4 rates"));
        }
        let refuse = |rate: &GivenRate, reason: String| {
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
                            "has no effect beside {} in a longer period; a shorter period \
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

impl GivenRate {
    /// The most permits at once, for algorithms that call it burst.
    fn at_once(&self) -> u64 {
        self.burst.unwrap_or(self.permits)
    }

    /// Whether this rate never denies anything that the other rate admits: it allows as many
    /// permits in its period as the other allows in a longer one.
    fn is_idle_beside(&self, other: &Self) -> bool {
        self.period < other.period
            && self.permits >= other.permits
            && self.at_once() >= other.at_once()
    }
}

impl Kind {
    /// Whether its rates need nothing but a number of permits and a period.
    fn takes_several_rates(self) -> bool {
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

const TAKE_SEVERAL_RATES: &str =
    "gcra, fixed_window, sliding_counter, sliding_window and sliding_log";

#[cfg(test)]
mod tests;
