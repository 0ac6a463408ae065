//! `"100/15min"` and `"50ms"`: rates and times as the file writes them.

use std::str::FromStr;
use std::time::Duration;

use super::FileError;
use super::fields::Field;
use crate::limit::MOST_PERMITS;
use crate::time::{DAY, HOUR, MINUTE, SECOND};

const UNITS: [(&str, Duration); 5] = [
    ("ms", Duration::from_millis(1)),
    ("s", SECOND),
    ("min", MINUTE),
    ("h", HOUR),
    ("day", DAY),
];

/// A number of permits in a time; zero admits nothing.
pub(super) fn rate(field: &Field<'_>) -> Result<(u64, Duration), FileError> {
    let expected = format!(
        "permits in a period, such as \"100/min\" or \"5/15min\", with at most {MOST_PERMITS} \
         permits and ms, s, min, h or day"
    );
    let parse = |text: &str| {
        let (permits, time) = text.split_once('/')?;
        // "/min" is short for "/1min".
        let time = match time.starts_with(|first: char| first.is_ascii_digit()) {
            true => read(time)?,
            false => unit(time)?,
        };
        let permits = number(permits).filter(|permits| *permits <= MOST_PERMITS);
        Some((permits?, time))
    };
    parse(field.text(&expected)?).ok_or_else(|| field.expected(&expected))
}

/// A time with its unit.
pub(super) fn time(field: &Field<'_>) -> Result<Duration, FileError> {
    let expected = "a time, such as \"50ms\" or \"2s\"";
    read(field.text(expected)?).ok_or_else(|| field.expected(expected))
}

fn read(time: &str) -> Option<Duration> {
    let digits = time.find(|character: char| !character.is_ascii_digit())?;
    let (count, name) = time.split_at(digits);
    unit(name)?.checked_mul(number(count)?)
}

fn unit(name: &str) -> Option<Duration> {
    let found = UNITS.iter().find(|(unit, _)| *unit == name);
    found.map(|(_, length)| *length)
}

/// Digits only: `parse` alone would accept a sign.
pub(super) fn number<N: FromStr>(digits: &str) -> Option<N> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}
