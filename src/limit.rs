//! `Limit`: an algorithm with its parameters, as the user says it.

use std::time::Duration;

use crate::error::ConfigError;
use crate::time::{DAY, Micros};

/// An algorithm with its parameters: how many permits, in what time, judged how.
///
/// A `Limit` is only a description; [`Limiter::new`](crate::Limiter::new) checks it and refuses
/// what makes no sense, naming the field. The ranges:
///
/// | field | range |
/// |---|---|
/// | `limit`, `burst` | 1 to 2^32 - 1 permits |
/// | `period`, `window` | 1 ms to 366 days, a whole number of microseconds |
/// | the time in which a whole `burst` comes back | at most 100 years |
///
/// | constructor | admits | state for each key |
/// |---|---|---|
/// | [`Limit::gcra`] | a steady rate with a burst | one instant |
/// | [`Limit::fixed_window`] | `limit` in each window, up to twice that around a boundary | a count and two instants |
/// | [`Limit::sliding_counter`] | about `limit` in any window, if requests come evenly | two counts and two durations |
/// | [`Limit::sliding_log`] | never more than `limit` in any window | one entry for each admitted request |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    kind: Kind,
    permits: u32,
    period: Duration,
    burst: Option<u32>,
    aligned: bool,
}

/// Which algorithm; public in the crate so that floor 1 can build its arithmetic from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gcra,
    FixedWindow,
    SlidingLog,
    SlidingCounter,
}

/// A limit that was found sound: what the algorithms are built from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoundLimit {
    pub(crate) kind: Kind,
    pub(crate) permits: u32,
    pub(crate) period: Micros,
    pub(crate) burst: u32,
    pub(crate) aligned: bool,
}

impl Limit {
    /// The generic cell rate algorithm (ITU-T I.371): `limit` permits in each `period`, evenly
    /// spread, with a burst of up to `limit` permits after idling (see [`burst`](Self::burst)).
    ///
    /// The same admissions as a token bucket, in the smallest state and the cheapest script. The
    /// default choice.
    ///
    /// ```
    /// use tower_throttle::{Limit, MINUTE};
    /// let limit = Limit::gcra(100, MINUTE).burst(20);
    /// ```
    pub const fn gcra(limit: u32, period: Duration) -> Self {
        Self::of(Kind::Gcra, limit, period)
    }

    /// At most `limit` permits in each window. A window opens with the first permitted request
    /// (or see [`aligned`](Self::aligned)) and ends `window` later.
    ///
    /// The cheapest to understand. Around the boundary of two windows up to `2 * limit` permits
    /// can be had within one window's length.
    pub const fn fixed_window(limit: u32, window: Duration) -> Self {
        Self::of(Kind::FixedWindow, limit, window)
    }

    /// At most `limit` permits in *any* interval of length `window`: exact, for one stored entry
    /// (about 15 bytes in Redis) for each admitted request.
    pub const fn sliding_log(limit: u32, window: Duration) -> Self {
        Self::of(Kind::SlidingLog, limit, window)
    }

    /// About `limit` permits in any interval of length `window`, estimated from two counts: the
    /// current window's, and of the previous window's the share that the interval still overlaps.
    ///
    /// The estimate takes the previous window's permits for evenly spread, and is as good as that
    /// is. At worst, all of them taken in its last moment, `2 * limit - 1` permits are had within
    /// one window's length.
    pub const fn sliding_counter(limit: u32, window: Duration) -> Self {
        Self::of(Kind::SlidingCounter, limit, window)
    }

    const fn of(kind: Kind, permits: u32, period: Duration) -> Self {
        Self {
            kind,
            permits,
            period,
            burst: None,
            aligned: false,
        }
    }

    /// How many permits can be taken at once after idling; as many as the limit, unless said.
    /// For [`gcra`](Self::gcra).
    #[must_use]
    pub const fn burst(mut self, permits: u32) -> Self {
        self.burst = Some(permits);
        self
    }

    /// Cuts the windows at multiples of `window` since the Unix epoch (full minutes, full hours,
    /// days in UTC) instead of at a key's first request. For [`fixed_window`](Self::fixed_window).
    #[must_use]
    pub const fn aligned(mut self) -> Self {
        self.aligned = true;
        self
    }

    /// Checks every field and every combination.
    pub(crate) fn sound(&self) -> Result<SoundLimit, ConfigError> {
        let (count, length) = match self.kind {
            Kind::Gcra => ("limit", "period"),
            Kind::FixedWindow | Kind::SlidingLog | Kind::SlidingCounter => ("limit", "window"),
        };
        if self.permits == 0 {
            return Err(ConfigError::out_of_range(count, 0, "1 to 4294967295"));
        }
        if self.period < MIN_PERIOD
            || self.period > MAX_PERIOD
            || !self.period.subsec_nanos().is_multiple_of(1_000)
        {
            return Err(ConfigError::out_of_range(
                length,
                format_args!("{:?}", self.period),
                "1 ms to 366 days, in whole microseconds",
            ));
        }
        if self.aligned && self.kind != Kind::FixedWindow {
            return Err(ConfigError::not_for("aligned", "fixed_window"));
        }
        let sound = SoundLimit {
            kind: self.kind,
            permits: self.permits,
            period: self.period.into(),
            burst: self.sound_burst()?,
            aligned: self.aligned,
        };
        Ok(sound)
    }

    fn sound_burst(&self) -> Result<u32, ConfigError> {
        let Some(burst) = self.burst else {
            return Ok(self.permits);
        };
        if self.kind != Kind::Gcra {
            return Err(ConfigError::not_for("burst", "gcra"));
        }
        if burst == 0 {
            return Err(ConfigError::out_of_range("burst", 0, "1 to 4294967295"));
        }
        // Keeps every stored instant below 2^53 microseconds, where a Lua number is exact.
        let refill = self.period.as_micros() * u128::from(burst) / u128::from(self.permits);
        if refill > MAX_REFILL.as_micros() {
            return Err(ConfigError::out_of_range(
                "burst",
                burst,
                "a burst that comes back within 100 years",
            ));
        }
        Ok(burst)
    }
}

const MIN_PERIOD: Duration = Duration::from_millis(1);
const MAX_PERIOD: Duration = Duration::from_secs(366 * DAY.as_secs());
const MAX_REFILL: Duration = Duration::from_secs(100 * 366 * DAY.as_secs());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    fn refusal(limit: Limit) -> String {
        limit.sound().unwrap_err().to_string()
    }

    #[test]
    fn the_whole_documented_range_is_accepted() {
        for limit in [
            Limit::gcra(1, 366 * DAY),
            Limit::gcra(u32::MAX, Duration::from_millis(1)),
            Limit::gcra(1, 366 * DAY).burst(100),
            Limit::fixed_window(u32::MAX, 366 * DAY).aligned(),
            Limit::sliding_log(1, Duration::from_millis(1)),
        ] {
            assert!(limit.sound().is_ok(), "{limit:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_field_the_input_and_what_would_be_right() {
        assert_eq!(
            refusal(Limit::gcra(0, SECOND)),
            "limit: got 0, expected 1 to 4294967295"
        );
        assert_eq!(
            refusal(Limit::gcra(1, SECOND).burst(0)),
            "burst: got 0, expected 1 to 4294967295"
        );
        assert_eq!(
            refusal(Limit::fixed_window(1, Duration::from_micros(999))),
            "window: got 999µs, expected 1 ms to 366 days, in whole microseconds"
        );
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
    }

    #[test]
    fn a_burst_that_takes_centuries_to_come_back_is_refused() {
        assert!(refusal(Limit::gcra(1, 366 * DAY).burst(101)).contains("100 years"));
    }
}
