//! gRPC: `grpc-retry-pushback-ms`, and the `google.rpc.RetryInfo` in `grpc-status-details-bin`.
//!
//! A few fields of a few messages, decoded by hand, as the rejection encodes them by hand.

use std::time::Duration;

use http::HeaderMap;

use super::text;
use super::wait::integer;

/// RESOURCE_EXHAUSTED and UNAVAILABLE. With others, such as ABORTED, a time to retry is about the
/// call alone.
const REFUSALS: [u32; 2] = [8, 14];

pub(super) fn wait(code: u32, headers: &HeaderMap) -> Option<Duration> {
    if !REFUSALS.contains(&code) {
        return None;
    }
    // A negative one says not to retry the call, and nothing about others.
    let pushback = text(headers, "grpc-retry-pushback-ms").and_then(integer);
    let details = text(headers, "grpc-status-details-bin").and_then(decoded);
    let retry_info = details.and_then(|status| retry_delay(&status));
    pushback.map(Duration::from_millis).max(retry_info)
}

/// The delay of the first `RetryInfo` in a `google.rpc.Status`.
fn retry_delay(status: &[u8]) -> Option<Duration> {
    const DETAILS: u64 = 3;
    const TYPE_URL: u64 = 1;
    const VALUE: u64 = 2;
    const RETRY_DELAY: u64 = 1;
    const SECONDS: u64 = 1;
    const NANOS: u64 = 2;
    let mut details = Fields(status).filter_map(|(field, value)| value.bytes_of(field, DETAILS));
    let info = details.find_map(|any| {
        let bytes = |wanted| Fields(any).find_map(|(field, value)| value.bytes_of(field, wanted));
        let is_retry_info = bytes(TYPE_URL)?.ends_with(b"/google.rpc.RetryInfo");
        is_retry_info.then(|| bytes(VALUE)).flatten()
    })?;
    let delay = Fields(info).find_map(|(field, value)| value.bytes_of(field, RETRY_DELAY))?;
    let integer = |wanted| {
        let of_field = Fields(delay).find(|(field, _)| *field == wanted);
        of_field.map_or(Some(0), |(_, value)| value.integer())
    };
    // Negative ones are those above the largest signed one.
    let (seconds, nanos) = (integer(SECONDS)?, integer(NANOS)?);
    let nanos = u32::try_from(nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    (i64::try_from(seconds).is_ok()).then(|| Duration::new(seconds, nanos))
}

/// The fields of a message. Ends where it cannot be read.
struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Value<'a> {
    fn integer(&self) -> Option<u64> {
        match self {
            Self::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    fn bytes_of(&self, field: u64, wanted: u64) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) if field == wanted => Some(bytes),
            _ => None,
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Integer(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let length = usize::try_from(length).ok()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Seven bits in each byte, the lowest first. All bytes but the last have the high bit set.
    fn varint(&mut self) -> Option<u64> {
        let mut integer = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            integer |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(integer);
            }
        }
        None
    }
}

/// The bytes of a text in base64, with or without padding.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for character in text.bytes() {
        let six = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}
