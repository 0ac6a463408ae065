//! `Retry-After`: RFC 9110, section 10.2.3.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

use super::text;
use super::wait::{seconds, until_date};

pub(super) fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = text(headers, header::RETRY_AFTER.as_str())?;
    // Some upstreams send fractions.
    seconds(text).or_else(|| until_date(text, now))
}
