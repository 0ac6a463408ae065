//! Lines in the common and in the combined format of Apache and nginx:
//!
//! ```text
//! 203.0.113.9 - alice [02/Mar/2026:09:00:03 +0000] "GET /a?b=c HTTP/1.1" 200 512 "-" "curl/8.5.0"
//! ```

use std::borrow::Cow;

use http::header::{HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{HeaderMap, Method, Uri};

use crate::line::{Answer, Said};
use crate::time;

pub(crate) fn read(line: &str) -> Result<Said, String> {
    let (address, rest) = line.split_once(' ').ok_or("is no line of a log")?;
    let address = address
        .parse()
        .map_err(|_| "begins with no address of a client")?;
    let (names, rest) = rest.split_once(" [").ok_or(NO_TIME)?;
    let (time, rest) = rest.split_once("] \"").ok_or(NO_TIME)?;
    let at = time::common(time).ok_or(NO_TIME)?;
    let (request, rest) = quoted(rest).ok_or(NO_REQUEST)?;
    let (method, target) = request_line(&request).ok_or(NO_REQUEST)?;
    let mut numbers = rest.trim_start().splitn(3, ' ');
    let status = numbers.next().and_then(|status| status.parse().ok());
    // After the status and the size, which may be missing in the common format.
    let quoted_fields = numbers.nth(1).unwrap_or_default();
    Ok(Said {
        at,
        address,
        method,
        target,
        headers: headers(quoted_fields),
        // After the name by RFC 1413, which nobody asks for.
        user: names
            .split_once(' ')
            .and_then(|(_, user)| said(user))
            .map(str::to_owned),
        answer: Answer {
            status: status.ok_or(NO_STATUS)?,
            grpc_status: None,
        },
    })
}

const NO_TIME: &str = "has no time such as [02/Mar/2026:09:00:03 +0000]";
const NO_REQUEST: &str = "has no request such as \"GET / HTTP/1.1\"";
const NO_STATUS: &str = "has no status after the request";

/// Servers write a dash for what there is not.
pub(crate) fn said(text: &str) -> Option<&str> {
    Some(text).filter(|text| !matches!(*text, "" | "-"))
}

fn request_line(request: &[u8]) -> Option<(Method, Uri)> {
    let mut words = request.split(|&byte| byte == b' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with(b"HTTP/") || words.next().is_some() {
        return None;
    }
    let method = Method::from_bytes(method).ok()?;
    Some((method, Uri::try_from(target).ok()?))
}

/// The referrer and the user agent of the combined format. Whatever follows has no known name.
fn headers(mut text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in [REFERER, USER_AGENT] {
        let Some((value, rest)) = text.trim_start().strip_prefix('"').and_then(quoted) else {
            break;
        };
        add(&mut headers, name, &value);
        text = rest;
    }
    headers
}

pub(crate) fn add(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) {
    if !matches!(value, b"" | b"-")
        && let Ok(value) = HeaderValue::from_bytes(value)
    {
        headers.append(name, value);
    }
}

/// The text up to the closing quote, and what follows.
fn quoted(text: &str) -> Option<(Cow<'_, [u8]>, &str)> {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })?;
    Some((unescaped(&text[..end]), &text[end + 1..]))
}

/// Apache writes `\"` and `\\`, nginx `\x22` and `\x5C`.
fn unescaped(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('\\') {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'x', high, low, after @ ..]) => (hex(*high) << 4 | hex(*low), after),
            (b'\\', [escaped, after @ ..]) => (*escaped, after),
            _ => (byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(bytes)
}

/// Zero for what is no digit, which no server writes.
fn hex(digit: u8) -> u8 {
    let digit = char::from(digit).to_digit(16);
    digit.map_or(0, |digit| digit as u8)
}
