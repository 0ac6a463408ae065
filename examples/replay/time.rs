//! The times of a log.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::strtime;
use tower_throttle::Micros;

/// `02/Mar/2026:09:00:03 +0100`, as in the common format.
pub(crate) fn common(text: &str) -> Option<Micros> {
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    micros(time.to_timestamp().ok()?)
}

/// As JSON lines have it: RFC 3339, the common format, or a number since the epoch.
pub(crate) fn any(text: &str) -> Option<Micros> {
    let rfc3339 = || text.parse().ok().and_then(micros);
    since_epoch(text).or_else(rfc3339).or_else(|| common(text))
}

/// Seconds, or as many digits more as make them milli-, micro- or nanoseconds. A fraction is of
/// whichever it is.
fn since_epoch(text: &str) -> Option<Micros> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || ![whole, fraction].iter().all(|part| is_digits(part)) {
        return None;
    }
    // Until the year 5138, seconds have at most eleven digits.
    let places_of_us: usize = match whole.len() {
        0..=11 => 6,
        12..=14 => 3,
        15..=17 => 0,
        _ => return whole.parse().ok().map(|ns: u64| Micros::new(ns / 1000)),
    };
    let digits = fraction.chars().chain(std::iter::repeat('0'));
    let us: String = whole.chars().chain(digits.take(places_of_us)).collect();
    us.parse().ok().map(Micros::new)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `None` before 1970.
fn micros(time: Timestamp) -> Option<Micros> {
    time.as_microsecond().try_into().ok().map(Micros::new)
}

/// `2026-03-02 09:00:03`, in UTC.
pub(crate) fn shown(at: Micros) -> String {
    formatted(at, "%Y-%m-%d %H:%M:%S")
}

/// `2026-03-02 09:00`, in UTC.
pub(crate) fn shown_minute(at: Micros) -> String {
    formatted(at, "%Y-%m-%d %H:%M")
}

fn formatted(at: Micros, format: &str) -> String {
    let time = i64::try_from(at.get()).ok();
    let time = time.and_then(|us| Timestamp::from_microsecond(us).ok());
    time.map_or_else(
        || format!("{} us", at.get()),
        |time| time.strftime(format).to_string(),
    )
}

/// A duration by its two largest units: `14 min 52 s`.
pub(crate) fn in_words(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [
        ("day", 86_400_000),
        ("h", 3_600_000),
        ("min", 60_000),
        ("s", 1_000),
        ("ms", 1),
    ];
    let mut rest = ms;
    let mut parts = Vec::new();
    for (unit, length) in units {
        let number = rest / length;
        rest %= length;
        if number > 0 {
            parts.push(format!("{number} {unit}"));
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.truncate(2);
    match parts.is_empty() {
        true => "less than 1 ms".to_owned(),
        false => parts.join(" "),
    }
}
