//! `X-RateLimit-*`: what there was before the drafts. Everybody means something else by it; what is
//! common is understood.

use std::time::{Duration, SystemTime};

use http::HeaderMap;

use super::text;
use super::wait::{duration, integer, seconds_or_instant, until_date};

const PREFIXES: [&str; 2] = ["x-ratelimit", "x-rate-limit"];

pub(super) fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    PREFIXES.iter().find_map(|prefix| of(headers, prefix, now))
}

/// There may be several quotas, of requests and of tokens. Those of which something remains refuse
/// nobody.
fn of(headers: &HeaderMap, prefix: &str, now: SystemTime) -> Option<Duration> {
    let reset = |quota: &str| {
        let names = ["reset-after", "reset"].map(|field| format!("{prefix}-{field}{quota}"));
        let mut values = names.iter().filter_map(|name| text(headers, name));
        values.find_map(|value| read(value, now))
    };
    let start = format!("{prefix}-remaining");
    let mut quotas = headers.keys().filter_map(|name| {
        let quota = name.as_str().strip_prefix(&start)?;
        Some((quota, integer(text(headers, name.as_str())?)?))
    });
    let mut quotas = quotas.by_ref().peekable();
    if quotas.peek().is_none() {
        return reset("");
    }
    let used_up = quotas.filter(|(_, remaining)| *remaining == 0);
    used_up.filter_map(|(quota, _)| reset(quota)).max()
}

fn read(text: &str, now: SystemTime) -> Option<Duration> {
    seconds_or_instant(text, now)
        .or_else(|| duration(text))
        .or_else(|| until_date(text, now))
}
