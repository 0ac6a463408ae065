//! The ways to write a time to wait, and `Retry-After`.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

use super::text;

/// From here on a number of seconds is an instant: 2001, or 32 years to wait.
const SECONDS_SINCE_1970: u64 = 1_000_000_000;
/// The same for milliseconds.
const MILLISECONDS_SINCE_1970: u64 = 1_000 * SECONDS_SINCE_1970;

/// `Retry-After`: RFC 9110, section 10.2.3.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = text(headers, header::RETRY_AFTER.as_str())?;
    // Some upstreams send fractions.
    seconds(text).or_else(|| until_date(text, now))
}

/// Seconds, which may have a fraction: `1`, `0.25`.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    decimal(text, 1_000_000_000).map(of_nanoseconds)
}

/// How long until this date; zero if it has passed.
pub(super) fn until_date(text: &str, now: SystemTime) -> Option<Duration> {
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// How long until this instant since 1970, or this many seconds.
pub(super) fn seconds_or_instant(text: &str, now: SystemTime) -> Option<Duration> {
    let number = seconds(text)?;
    let since_1970 = match number.as_secs() {
        MILLISECONDS_SINCE_1970.. => number / 1_000,
        SECONDS_SINCE_1970.. => number,
        _ => return Some(number),
    };
    let now = now.duration_since(SystemTime::UNIX_EPOCH);
    Some(since_1970.saturating_sub(now.unwrap_or_default()))
}

/// A duration in the notation of Go: `6m0s`, `1.5s`, `20ms`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let is_number = |character: char| character.is_ascii_digit() || character == '.';
        let (number, behind) = rest.split_at(rest.find(|it| !is_number(it))?);
        let end = behind.find(is_number).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let nanoseconds = match unit {
            "d" => 86_400_000_000_000,
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1_000,
            "ns" => 1,
            _ => return None,
        };
        let part = decimal(number, nanoseconds)?;
        sum = sum.saturating_add(of_nanoseconds(part));
        rest = behind;
    }
    Some(sum)
}

/// So many times a number, rounded up. What is too large counts as the largest.
fn decimal(text: &str, times: u64) -> Option<u128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = u128::from(integer(whole)?) * u128::from(times);
    // Nine digits, further ones are less than a nanosecond.
    let shown = &fraction[..fraction.len().min(9)];
    integer(fraction)?;
    let parts = u128::from(integer(shown)?) * u128::from(times);
    Some(whole + parts.div_ceil(10_u128.pow(shown.len() as u32)))
}

/// Digits alone. What is too large counts as the largest.
pub(super) fn integer(text: &str) -> Option<u64> {
    let is_integer = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| text.parse().unwrap_or(u64::MAX))
}

/// What is too long counts as the longest.
fn of_nanoseconds(nanoseconds: u128) -> Duration {
    match u64::try_from(nanoseconds / 1_000_000_000) {
        Ok(seconds) => Duration::new(seconds, (nanoseconds % 1_000_000_000) as u32),
        Err(_) => Duration::MAX,
    }
}
