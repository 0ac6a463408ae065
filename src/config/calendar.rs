//! `algorithm = "calendar"`: the limit with its calendar.

use super::FileError;
use super::fields::{Field, Fields};
use super::units::number;
use crate::limit::{Calendar, Limit, MOST_PERMITS, Weekday};

type Make = fn() -> Calendar;

const UNITS: [(&str, Make); 3] = [
    ("month", Calendar::month),
    ("week", Calendar::week),
    ("day", Calendar::day),
];

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// The number of permits is that of a tier or a policy, all else is the policy's.
pub(super) fn limit(amounts: &Fields<'_>, policy: &Fields<'_>) -> Result<Limit, FileError> {
    let limit = amounts.need("limit", "limit = \"1000000/month\"")?;
    let (permits, unit, mut calendar) = rate(&limit)?;
    let refuse_without = |field: &Field<'_>, needed: &str| match unit {
        unit if unit == needed => Ok(()),
        _ => Err(field.refuse(format_args!("is an option of limits a {needed}"))),
    };
    if let Some(day) = policy.get("anchor") {
        refuse_without(&day, "month")?;
        let expected = "a day of the month, 1 to 31";
        let anchor = day.number(expected)?;
        if !(1..=31).contains(&anchor) {
            return Err(day.expected(expected));
        }
        calendar = calendar.anchor(anchor);
    }
    if let Some(day) = policy.get("first_day") {
        refuse_without(&day, "week")?;
        calendar = calendar.first_day(day.choice(&WEEKDAYS)?);
    }
    if let Some(zone) = policy.get("zone") {
        let expected =
            "a name of the IANA time-zone database, such as \"Europe/Berlin\", or \"UTC\"";
        let named = calendar.zone(zone.text(expected)?);
        calendar = named.map_err(|_| zone.expected(expected))?;
    }
    Ok(Limit::calendar(permits, calendar))
}

fn rate(limit: &Field<'_>) -> Result<(u64, &'static str, Calendar), FileError> {
    let expected = format!(
        "permits in a calendar's month, week or day, such as \"1000000/month\", with at most \
         {MOST_PERMITS} permits"
    );
    let parse = |text: &str| {
        let (permits, name) = text.split_once('/')?;
        let (unit, make) = UNITS.iter().find(|(unit, _)| *unit == name)?;
        let permits = number(permits).filter(|permits| *permits <= MOST_PERMITS)?;
        Some((permits, *unit, make()))
    };
    parse(limit.text(&expected)?).ok_or_else(|| limit.expected(&expected))
}
