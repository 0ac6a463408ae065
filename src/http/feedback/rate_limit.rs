//! `RateLimit` and `RateLimit-Policy`: drafts 3 to 11 of draft-ietf-httpapi-ratelimit-headers.

use std::time::Duration;

use http::HeaderMap;

use super::structured::{Member, members};
use super::text;
use super::wait::integer;

pub(super) fn wait(headers: &HeaderMap) -> Option<Duration> {
    let secs = listed(headers)
        .or_else(|| in_dictionary(headers))
        .or_else(|| in_fields(headers));
    secs.map(Duration::from_secs)
}

/// From draft 8 on: `RateLimit: "burst";r=0;t=5, "day";r=7;t=3600`, and `RateLimit-Policy:
/// "burst";q=10;w=60`.
fn listed(headers: &HeaderMap) -> Option<u64> {
    let window = |name: &str| {
        let mut policies = members(headers, "ratelimit-policy");
        policies
            .find(|policy| policy.item() == name)?
            .parameter("w")
    };
    let used_up = members(headers, "ratelimit").filter(|quota| quota.parameter("r") == Some(0));
    used_up
        .filter_map(|quota| quota.parameter("t").or_else(|| window(quota.item())))
        .max()
}

/// Draft 7: `RateLimit: limit=10, remaining=0, reset=5`.
fn in_dictionary(headers: &HeaderMap) -> Option<u64> {
    let value = |key: &'static str| {
        let each = members(headers, "ratelimit");
        each.filter_map(move |member: Member<'_>| member.value(key))
            .last()
            .flatten()
    };
    until_reset(value("remaining"), value("reset"))
}

/// Up to draft 6: `RateLimit-Remaining: 0` and `RateLimit-Reset: 5`.
fn in_fields(headers: &HeaderMap) -> Option<u64> {
    let value = |name: &str| integer(text(headers, name)?);
    until_reset(value("ratelimit-remaining"), value("ratelimit-reset"))
}

fn until_reset(remaining: Option<u64>, reset: Option<u64>) -> Option<u64> {
    reset.filter(|_| remaining.is_none_or(|remaining| remaining == 0))
}
