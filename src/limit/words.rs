//! Shows a limit's numbers as text.

use std::fmt;
use std::time::Duration;

use super::rate::GivenRate;
use super::{DEFAULT_LEASE, DEFAULT_SLICES, Kind, Limit};

/// The numbers, without the algorithm's name: `100 in 1 min, burst 20`. With several rates: `10 in
/// 1 s and 1000 in 1 h`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, rate) in self.rates.iter().enumerate() {
            f.write_str(if position > 0 { " and " } else { "" })?;
            self.write_rate(rate, f)?;
        }
        // Options that hold for all rates.
        match self.kind {
            Some(Kind::FixedWindow) if self.aligned => f.write_str(", aligned"),
            Some(Kind::SlidingWindow) => {
                write!(f, ", {} slices", self.slices.unwrap_or(DEFAULT_SLICES))
            }
            _ => Ok(()),
        }
    }
}

impl Limit {
    fn write_rate(&self, rate: &GivenRate, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let permits = rate.permits;
        let period = Words(rate.period);
        let Some(kind) = self.kind else {
            return f.write_str("nothing");
        };
        match kind {
            Kind::Gcra => {
                write!(f, "{permits} in {period}")?;
                let burst = rate.burst;
                burst.map_or(Ok(()), |burst| write!(f, ", burst {burst}"))
            }
            Kind::TokenBucket | Kind::LeakyBucket => {
                write!(f, "{permits} in {period}")?;
                if let Some(capacity) = self.capacity {
                    write!(f, ", capacity {capacity}")?;
                }
                f.write_str(if self.without_delay {
                    ", without delay"
                } else {
                    ""
                })
            }
            Kind::FixedWindow => match &self.calendar {
                Some(calendar) => write!(f, "{permits} in each {calendar}"),
                None => write!(f, "{permits} in each window of {period}"),
            },
            Kind::SlidingLog | Kind::SlidingWindow => write!(f, "{permits} in any {period}"),
            Kind::SlidingCounter => write!(f, "about {permits} in any {period}"),
            Kind::Concurrency => {
                let lease = Words(self.lease.unwrap_or(DEFAULT_LEASE));
                write!(f, "{permits} at the same time, leases of {lease}")
            }
        }
    }
}

/// A time, shown in the largest unit of which it is a multiple.
pub(crate) struct Words(pub(crate) Duration);

const UNITS: [(u128, &str); 6] = [
    (86_400_000_000, "d"),
    (3_600_000_000, "h"),
    (60_000_000, "min"),
    (1_000_000, "s"),
    (1_000, "ms"),
    (1, "us"),
];

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        let mut units = UNITS.iter();
        match units.find(|(unit, _)| us >= *unit && us.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{} {name}", us / unit),
            // No valid limit is that short.
            None => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{per_hour, per_second};
    use crate::time::{DAY, HOUR, MINUTE, SECOND};

    #[test]
    fn every_algorithm_shows_all_its_numbers() {
        for (limit, words) in [
            (Limit::gcra(100, MINUTE), "100 in 1 min"),
            (Limit::gcra(100, MINUTE).burst(20), "100 in 1 min, burst 20"),
            (
                Limit::token_bucket(100, per_second(50)),
                "50 in 1 s, capacity 100",
            ),
            (
                Limit::leaky_bucket(20, per_hour(9)).without_delay(),
                "9 in 1 h, capacity 20, without delay",
            ),
            (Limit::fixed_window(5, DAY), "5 in each window of 1 d"),
            (
                Limit::fixed_window(5, 36 * HOUR).aligned(),
                "5 in each window of 36 h, aligned",
            ),
            (Limit::sliding_log(5, 15 * MINUTE), "5 in any 15 min"),
            (
                Limit::sliding_window(5, 90 * SECOND),
                "5 in any 90 s, 10 slices",
            ),
            (
                Limit::sliding_window(5, SECOND).slices(3),
                "5 in any 1 s, 3 slices",
            ),
            (
                Limit::sliding_counter(7, Duration::from_millis(250)),
                "about 7 in any 250 ms",
            ),
            (
                Limit::gcra(10, SECOND).burst(20).and(1_000, HOUR),
                "10 in 1 s, burst 20 and 1000 in 1 h",
            ),
            (
                Limit::sliding_window(5, SECOND).and(20, MINUTE),
                "5 in any 1 s and 20 in any 1 min, 10 slices",
            ),
            (
                Limit::fixed_window(5, SECOND).and(20, MINUTE).aligned(),
                "5 in each window of 1 s and 20 in each window of 1 min, aligned",
            ),
            (
                Limit::concurrency(20),
                "20 at the same time, leases of 30 s",
            ),
            (Limit::nothing(), "nothing"),
            (
                Limit::concurrency(20).lease(10 * SECOND),
                "20 at the same time, leases of 10 s",
            ),
        ] {
            assert_eq!(limit.to_string(), words);
        }
    }

    #[cfg(feature = "calendar")]
    #[test]
    fn a_calendar_says_its_zone_and_where_its_windows_begin() {
        use crate::limit::{Calendar, Weekday};

        let berlin = |calendar: Calendar| calendar.zone("europe/berlin").unwrap();
        for (calendar, words) in [
            (Calendar::month(), "5 in each month, UTC"),
            (
                berlin(Calendar::month().anchor(31)),
                "5 in each month from day 31, Europe/Berlin",
            ),
            (berlin(Calendar::day()), "5 in each day, Europe/Berlin"),
            (
                Calendar::week().first_day(Weekday::Sunday),
                "5 in each week from Sunday, UTC",
            ),
        ] {
            assert_eq!(Limit::calendar(5, calendar).to_string(), words);
        }
    }

    #[test]
    fn a_time_of_no_whole_microseconds_is_no_trouble() {
        assert_eq!(Words(Duration::ZERO).to_string(), "0ns");
        assert_eq!(Words(Duration::MAX).to_string().split(' ').count(), 2);
    }
}
