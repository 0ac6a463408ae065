//! Where the windows of a calendar begin: at the first instant of certain dates in its zone.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::{Calendar, Unit, Weekday, Zone};
use crate::time::Micros;

/// In the year 2223. No store is exact later, and no window begins later.
const LAST_US: u64 = 8_000_000_000_000_000;

/// A Thursday.
const EPOCH: Date = Date::constant(1970, 1, 1);

impl Calendar {
    /// When the window that contains this instant begins, when the next one does, and when the one
    /// behind that does.
    pub(super) fn boundaries(&self, at: Micros) -> [Micros; 3] {
        let utc = TimeZone::UTC;
        let zone = self.zone.map_or(&utc, |zone: &Zone| &zone.rules);
        let at = at.get().min(LAST_US) as i64;
        let start = |window| start_of(zone, self.first_date(window));
        let mut window = Timestamp::from_microsecond(at)
            .map_or(0, |at| self.window_of(zone.to_datetime(at).date()));
        // A clock that is set back from a date shows it again later, and a skipped date has no instant
        // of its own.
        while start(window) > at {
            window -= 1;
        }
        while start(window + 1) <= at {
            window += 1;
        }
        let [last, next] = [window, window + 1].map(start);
        window += 2;
        while start(window) <= next {
            window += 1;
        }
        // Before 1970 there is no instant.
        [last, next, start(window)].map(|us| Micros::new(us.max(0) as u64))
    }

    /// The number of the window of a date, or of the one behind it.
    fn window_of(&self, date: Date) -> i64 {
        match self.unit {
            Unit::Month => i64::from(date.year()) * 12 + i64::from(date.month()) - 1,
            Unit::Week => (days_to(date) - self.first_of_weeks()).div_euclid(7),
            Unit::Day => days_to(date),
        }
    }

    fn first_date(&self, window: i64) -> Date {
        match self.unit {
            Unit::Month => {
                let [year, month] = [window.div_euclid(12), window.rem_euclid(12) + 1];
                let first = Date::constant(year as i16, month as i8, 1);
                let day = self.anchor.unwrap_or(1) as i8;
                Date::constant(year as i16, month as i8, day.min(first.days_in_month()))
            }
            Unit::Week => behind_epoch(window * 7 + self.first_of_weeks()),
            Unit::Day => behind_epoch(window),
        }
    }

    /// The day, counted from the epoch, with which week 0 begins.
    fn first_of_weeks(&self) -> i64 {
        self.first_day.unwrap_or(Weekday::Monday) as i64 - 3
    }
}

fn behind_epoch(days: i64) -> Date {
    EPOCH.saturating_add(Span::new().days(days))
}

fn days_to(date: Date) -> i64 {
    date.duration_since(EPOCH).as_hours() / 24
}

/// The first instant of a date, or of the one that follows if there is none of it, in microseconds
/// since the epoch.
fn start_of(zone: &TimeZone, date: Date) -> i64 {
    let start = zone.to_timestamp(date.at(0, 0, 0, 0));
    start.map_or(i64::MAX, Timestamp::as_microsecond)
}
