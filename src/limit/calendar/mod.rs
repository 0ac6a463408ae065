//! `Calendar`: months, weeks or days in a time zone, as the user says them.

use std::fmt;
use std::time::Duration;

pub(crate) use self::schedule::Schedule;
use self::zone::Zone;
use crate::error::ConfigError;
use crate::time::DAY;

mod boundaries;
mod schedule;
mod zone;

/// The windows of [`Limit::calendar`](crate::Limit::calendar): months, weeks or days.
///
/// A window begins at midnight in its time zone, in UTC unless [`zone`](Self::zone) says another, or
/// with the first instant of that day, where clocks skip midnight. So a day on which clocks change
/// has 23 or 25 hours, and a date that a zone has skipped has no window.
///
/// ```
/// use tower_throttle::{Calendar, Limit, Weekday};
///
/// let billing = Calendar::month().anchor(15).zone("Europe/Berlin")?;
/// let limit = Limit::calendar(1_000_000, billing);
/// assert_eq!(limit.to_string(), "1000000 in each month from day 15, Europe/Berlin");
///
/// let week = Calendar::week().first_day(Weekday::Sunday);
/// # assert_eq!(Limit::calendar(5, week).to_string(), "5 in each week from Sunday, UTC");
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # Time zones
///
/// Names are those of the IANA time-zone database. The rules are the system's (those in
/// `/usr/share/zoneinfo`, or where the variable `TZDIR` says), so that its updates are enough when a
/// government changes them; a process reads the rules of a zone once, and learns of an update when it
/// is started again. Where the system has none, as in a small container, they are those that the
/// crate [jiff](https://docs.rs/jiff) was released with.
///
/// Processes with other rules for a zone never admit more together: where they begin a window at
/// different instants no more than a day, or half a window, apart, the store opens one window there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: Unit,
    /// `None` is UTC.
    zone: Option<&'static Zone>,
    anchor: Option<u8>,
    first_day: Option<Weekday>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Unit {
    Month,
    Week,
    Day,
}

/// A day of the week, for [`Calendar::first_day`].
#[expect(clippy::exhaustive_enums, reason = "a week has seven days")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Calendar {
    /// Months, from the first day of each, or see [`anchor`](Self::anchor).
    pub const fn month() -> Self {
        Self::of(Unit::Month)
    }

    /// Weeks, from Monday, or see [`first_day`](Self::first_day).
    pub const fn week() -> Self {
        Self::of(Unit::Week)
    }

    /// Days, from midnight to midnight.
    pub const fn day() -> Self {
        Self::of(Unit::Day)
    }

    const fn of(unit: Unit) -> Self {
        Self {
            unit,
            zone: None,
            anchor: None,
            first_day: None,
        }
    }

    /// Sets the time zone, by its name in the IANA time-zone database: `Europe/Berlin`, `UTC`. Upper
    /// and lower case make no difference.
    ///
    /// The process keeps the rules of each zone that it was asked for, so that this may be called for
    /// each request, as in [`Policy::limit_by`](crate::Policy::limit_by).
    ///
    /// # Errors
    ///
    /// If neither the system nor jiff knows a zone of this name.
    pub fn zone(mut self, name: &str) -> Result<Self, ConfigError> {
        self.zone = Some(Zone::named(name)?);
        Ok(self)
    }

    /// Sets the day on which each month begins, 1 to 31, for billing days. A month that is shorter
    /// begins with its last day. For [`month`](Self::month).
    #[must_use]
    pub const fn anchor(mut self, day: u8) -> Self {
        self.anchor = Some(day);
        self
    }

    /// Sets the day on which each week begins. For [`week`](Self::week).
    #[must_use]
    pub const fn first_day(mut self, day: Weekday) -> Self {
        self.first_day = Some(day);
        self
    }

    /// The length of its longest window, but for changes of clocks.
    pub(super) const fn length(&self) -> Duration {
        let days = match self.unit {
            Unit::Month => 31,
            Unit::Week => 7,
            Unit::Day => 1,
        };
        Duration::from_secs(days * DAY.as_secs())
    }

    /// Checks every option. The schedule is the same for equal calendars.
    pub(super) fn schedule(&self) -> Result<&'static Schedule, ConfigError> {
        if self.anchor.is_some() && self.unit != Unit::Month {
            return Err(ConfigError::not_for("anchor", "month"));
        }
        if self.first_day.is_some() && self.unit != Unit::Week {
            return Err(ConfigError::not_for("first_day", "week"));
        }
        if let Some(day) = self.anchor
            && !(1..=31).contains(&day)
        {
            return Err(ConfigError::out_of_range("anchor", day, "1 to 31"));
        }
        Ok(Schedule::of(*self))
    }
}

/// What each window is, in words: `month from day 15, Europe/Berlin`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.unit {
            Unit::Month => "month",
            Unit::Week => "week",
            Unit::Day => "day",
        })?;
        if let Some(day) = self.anchor {
            write!(f, " from day {day}")?;
        }
        if let Some(day) = self.first_day {
            write!(f, " from {day:?}")?;
        }
        write!(f, ", {}", self.zone.map_or("UTC", Zone::name))
    }
}

#[cfg(test)]
mod tests;
