//! Boundaries against a naive walk over the dates of every zone, for fifty years.

use std::sync::LazyLock;

use jiff::civil::{Date, date};
use jiff::tz::{self, TimeZone};
use jiff::{Timestamp, ToSpan as _};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::time::{HOUR, Micros};

/// The years that are looked at.
const YEARS: [i16; 2] = [1985, 2035];

const WEEK: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

static ZONES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let names = tz::db().available().map(|name| name.as_str().to_owned());
    let names: Vec<_> = names.collect();
    assert!(names.len() > 400, "found only {} zones", names.len());
    names
});

fn instant(us: i64) -> Timestamp {
    Timestamp::from_microsecond(us).unwrap()
}

fn calendars() -> impl Strategy<Value = Calendar> {
    prop_oneof![
        Just(Calendar::day()),
        select(&WEEK[..]).prop_map(|day| Calendar::week().first_day(day)),
        Just(Calendar::week()),
        Just(Calendar::month()),
        (1_u8..=31).prop_map(|day| Calendar::month().anchor(day)),
    ]
}

/// Whether a window begins on this date, by its digits alone.
fn is_first(calendar: &Calendar, date: Date) -> bool {
    match calendar.unit {
        Unit::Day => true,
        Unit::Week => {
            let first = calendar.first_day.unwrap_or(Weekday::Monday);
            date.weekday().to_monday_zero_offset() == first as i8
        }
        Unit::Month => {
            let anchor = calendar.anchor.unwrap_or(1) as i8;
            let next = date.tomorrow().unwrap();
            date.day() == anchor || (next.month() != date.month() && date.day() < anchor)
        }
    }
}

/// The last boundary up to an instant and the first behind it: dates on which windows begin, each at
/// its first instant.
fn naive(calendar: &Calendar, zone: &TimeZone, at: i64) -> [i64; 2] {
    let here = zone.to_datetime(instant(at)).date();
    let each = (-40..=40_i64).map(|days| here.checked_add(days.days()).unwrap());
    let firsts = each.filter(|date| is_first(calendar, *date));
    let mut begins: Vec<i64> = firsts.map(|date| first_instant(zone, date)).collect();
    begins.sort_unstable();
    let behind = begins.partition_point(|begin| *begin <= at);
    [begins[behind - 1], begins[behind]]
}

/// The first instant at which a zone's clocks show this date or a later one.
fn first_instant(zone: &TimeZone, date: Date) -> i64 {
    let is_reached = |us: i64| zone.to_datetime(instant(us)).date() >= date;
    let noon = date
        .at(12, 0, 0, 0)
        .to_zoned_datetime(TimeZone::UTC)
        .unwrap();
    let noon = noon.timestamp().as_microsecond();
    let day = 86_400_000_000;
    // In steps that no change of clocks and back fits into, and then exactly.
    let step = 600_000_000;
    let mut reached = (noon - 2 * day..=noon + 2 * day).step_by(step as usize);
    let reached = reached.find(|us| is_reached(*us)).unwrap();
    let (mut before, mut behind) = (reached - step, reached);
    while behind - before > 1 {
        let middle = before + (behind - before) / 2;
        match is_reached(middle) {
            true => behind = middle,
            false => before = middle,
        }
    }
    behind
}

/// What is true of the boundaries around any instant.
fn check(calendar: &Calendar, at: i64) {
    let around = |at: Micros| calendar.boundaries(at);
    let now = Micros::new(at as u64);
    let [last, next, after] = around(now);
    assert!(last <= now && now < next && next < after, "{calendar} {at}");
    assert_eq!(around(next)[..2], [next, after], "{calendar} {at}");
    let before = next.saturating_sub(Micros::new(1));
    assert_eq!(around(before), [last, next, after], "{calendar} {at}");
    assert_eq!(around(last), [last, next, after], "{calendar} {at}");
    assert_eq!(last.get() % 1_000_000, 0, "{calendar} {at}");
}

fn check_naively(calendar: &Calendar, at: i64) {
    check(calendar, at);
    let utc = TimeZone::UTC;
    let zone = calendar.zone.map_or(&utc, |zone: &Zone| &zone.rules);
    let [last, next, _] = calendar.boundaries(Micros::new(at as u64));
    let naive = naive(calendar, zone, at);
    let found = [last, next].map(|at| at.get() as i64);
    assert_eq!(found, naive, "{calendar} around {}", instant(at));
}

fn years() -> [i64; 2] {
    YEARS.map(|year| {
        let start = date(year, 1, 1).at(0, 0, 0, 0);
        let start = start.to_zoned_datetime(TimeZone::UTC).unwrap();
        start.timestamp().as_microsecond()
    })
}

/// Where clocks change is where boundaries go wrong.
#[test]
fn boundaries_are_right_around_every_change_of_any_zones_clocks() {
    let [first, last] = years().map(instant);
    let mut changes = 0;
    for name in &*ZONES {
        let day = Calendar::day().zone(name).unwrap();
        let month = Calendar::month().zone(name).unwrap();
        let rules = TimeZone::get(name).unwrap();
        let each = rules.following(first);
        for change in each.take_while(|change| change.timestamp() < last) {
            let change = change.timestamp().as_microsecond();
            for at in [change - 1, change] {
                check(&day, at);
                check(&month.anchor(31), at);
            }
            if changes % 20 == 0 {
                check_naively(&day, change);
            }
            changes += 1;
        }
    }
    assert!(changes > 10_000, "{changes}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn boundaries_agree_with_a_walk_over_the_dates_of_any_zone(
        calendar in calendars(),
        zone in any::<Index>(),
        at in years()[0]..years()[1],
    ) {
        let calendar = calendar.zone(&ZONES[zone.index(ZONES.len())]).unwrap();
        check_naively(&calendar, at);
    }
}

#[test]
fn each_month_of_a_calendar_follows_the_one_before() {
    let months = |calendar: Calendar, mut at: Micros, count: usize| -> Vec<String> {
        let begins = std::iter::repeat_with(|| {
            let [last, next, _] = calendar.boundaries(at);
            at = next;
            instant(last.get() as i64).to_string()
        });
        begins.take(count).collect()
    };
    let january = Micros::new(
        "2024-01-31T12:00:00Z"
            .parse::<Timestamp>()
            .unwrap()
            .as_microsecond() as u64,
    );
    assert_eq!(
        months(Calendar::month().anchor(31), january, 4),
        [
            "2024-01-31T00:00:00Z",
            "2024-02-29T00:00:00Z",
            "2024-03-31T00:00:00Z",
            "2024-04-30T00:00:00Z"
        ]
    );
    let berlin = Calendar::month().zone("Europe/Berlin").unwrap();
    assert_eq!(
        months(berlin, january, 4),
        [
            "2023-12-31T23:00:00Z",
            "2024-01-31T23:00:00Z",
            "2024-02-29T23:00:00Z",
            "2024-03-31T22:00:00Z"
        ]
    );
}

#[test]
fn a_day_on_which_clocks_change_has_23_or_25_hours() {
    let berlin = Calendar::day().zone("Europe/Berlin").unwrap();
    for (noon, hours) in [
        ("2024-03-31T12:00:00Z", 23),
        ("2024-10-27T12:00:00Z", 25),
        ("2024-05-01T12:00:00Z", 24),
    ] {
        let noon: Timestamp = noon.parse().unwrap();
        let [last, next, _] = berlin.boundaries(Micros::new(noon.as_microsecond() as u64));
        assert_eq!(next.saturating_sub(last), Micros::from(hours * HOUR));
    }
}

/// Samoa went from the 29th of December 2011 to the 31st.
#[test]
fn a_date_that_a_zone_has_skipped_has_no_window() {
    let apia = Calendar::day().zone("Pacific/Apia").unwrap();
    let at: Timestamp = "2011-12-30T09:59:59Z".parse().unwrap();
    let [last, next, after] = apia.boundaries(Micros::new(at.as_microsecond() as u64));
    for length in [next.saturating_sub(last), after.saturating_sub(next)] {
        assert_eq!(length, DAY.into());
    }
    let date = |at: Micros| {
        let zone = TimeZone::get("Pacific/Apia").unwrap();
        zone.to_datetime(instant(at.get() as i64))
            .date()
            .to_string()
    };
    assert_eq!([date(last), date(next)], ["2011-12-29", "2011-12-31"]);
}

#[test]
fn a_zone_that_nobody_knows_is_refused_by_its_name() {
    for name in ["Europe/Atlantis", "", "../../etc/passwd", "local"] {
        let error = Calendar::day().zone(name).unwrap_err().to_string();
        assert!(error.starts_with(&format!("zone: got {name:?}")), "{error}");
        assert!(error.contains("such as \"Europe/Berlin\""), "{error}");
    }
}

/// An instant that no store reaches makes no difference to those that it does.
#[test]
fn no_instant_is_too_early_or_too_late() {
    for at in [0, 1, u64::MAX / 2, u64::MAX] {
        for calendar in [
            Calendar::day(),
            Calendar::week(),
            Calendar::month().anchor(31),
        ] {
            for zone in ["America/Los_Angeles", "Pacific/Kiritimati"] {
                let calendar = calendar.zone(zone).unwrap();
                let [last, next, after] = calendar.boundaries(Micros::new(at));
                assert!(last < next && next < after);
            }
        }
    }
}
