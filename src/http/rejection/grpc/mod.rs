//! The response to a rejected gRPC request: trailers-only.
//!
//! Always HTTP 200, in one HEADERS frame that ends the stream. gRPC clients map a 429 to
//! UNAVAILABLE and may retry it, which would add load to an overloaded service. See
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
//!
//! gRPC-Web gets the same response; its clients read the response headers:
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md>.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};

use super::{Class, Rejection, number};
use crate::random::random;
use crate::request::RequestHead;

mod details;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

pub(super) fn response(dialect: Dialect, rejection: &Rejection) -> Response<Bytes> {
    let content_type = match dialect {
        Dialect::Grpc => HeaderValue::from_static("application/grpc"),
        Dialect::GrpcWeb(of_request) => of_request,
    };
    let code = code(rejection.kind.class());
    let message = message(rejection);
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, code.into());
    // Percent-encoded text and base64 are always valid values.
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(status) = details::status(rejection, code, &message)
        && let Ok(details) = HeaderValue::try_from(details::unpadded(status.as_ref()))
    {
        headers.insert(GRPC_STATUS_DETAILS, details);
    }
    headers.insert(GRPC_RETRY_PUSHBACK, pushback(details::wait(rejection)));
    response
}

/// Raises the pushback to at least this many seconds.
pub(super) fn prolong(headers: &mut HeaderMap, secs: u64) {
    let least = Duration::from_secs(secs);
    let shown = number(headers, &GRPC_RETRY_PUSHBACK).map(Duration::from_millis);
    if shown.is_some_and(|shown| shown < least) {
        headers.insert(GRPC_RETRY_PUSHBACK, pushback(Some(least)));
    }
}

/// <https://grpc.io/docs/guides/status-codes/>
fn code(class: Class) -> u16 {
    const INVALID_ARGUMENT: u16 = 3;
    const PERMISSION_DENIED: u16 = 7;
    const RESOURCE_EXHAUSTED: u16 = 8;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    match class {
        Class::Quota => RESOURCE_EXHAUSTED,
        Class::StoreFailed => UNAVAILABLE,
        Class::Refused => PERMISSION_DENIED,
        Class::BadRequest => INVALID_ARGUMENT,
        Class::Misconfigured => INTERNAL,
    }
}

/// The longest content type that is echoed, in bytes; real ones are shorter. Otherwise a client
/// could make the response head so large that a proxy marks the server as faulty, for all clients.
const LONGEST_ANSWERED: usize = 128;

/// The gRPC protocol of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-Web, which is answered with the request's content type, unless that is too long.
    GrpcWeb(HeaderValue),
}

impl Dialect {
    /// `None` if the request is answered as plain HTTP.
    ///
    /// Only `POST` counts as gRPC, since gRPC clients send nothing else. tonic serves calls by any
    /// method, but any client can put the content type on a `GET`, and its denial must not become a
    /// 200, which caches and proxies would take for a success.
    ///
    /// The HTTP version does not matter: plain gRPC arrives over HTTP/1.1 behind a gRPC-Web
    /// translation outside of the layer, such as `tonic_web`'s, and gRPC-Web works over any
    /// version.
    pub(super) fn of(request: &RequestHead<'_>) -> Option<Self> {
        const GRPC: &[u8] = b"application/grpc";
        const WEB: &[u8] = b"-web";
        if *request.method != Method::POST {
            return None;
        }
        let content_type = request.headers.get(CONTENT_TYPE)?;
        let rest = after(content_type.as_bytes(), GRPC)?;
        if ends_or_goes_on(rest) {
            return Some(Self::Grpc);
        }
        let rest = after(rest, WEB)?;
        let (rest, plain) = match after(rest, b"-text") {
            Some(rest) => (rest, "application/grpc-web-text"),
            None => (rest, "application/grpc-web"),
        };
        ends_or_goes_on(rest).then(|| {
            Self::GrpcWeb(match content_type.len() {
                ..=LONGEST_ANSWERED => content_type.clone(),
                _ => HeaderValue::from_static(plain),
            })
        })
    }
}

/// The rest after a prefix. Media types are case-insensitive: RFC 9110, section 8.3.1.
fn after<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Whether the media type ends here, apart from a suffix (`+proto`) and parameters.
fn ends_or_goes_on(rest: &[u8]) -> bool {
    matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
}

/// The longest message in bytes, before encoding. Clients drop responses with more than about 8 KiB
/// of headers, and a rejection can name a hundred policies.
const LONGEST_MESSAGE: usize = 256;

/// The end of a truncated message.
const CUT: &str = "...";

fn message(rejection: &Rejection) -> String {
    let mut sentence = rejection.to_string();
    if sentence.len() > LONGEST_MESSAGE {
        let mut end = LONGEST_MESSAGE - CUT.len();
        while !sentence.is_char_boundary(end) {
            end -= 1;
        }
        sentence.truncate(end);
        sentence.push_str(CUT);
    }
    sentence
}

fn percent_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a `String` cannot fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

/// The longest pushback. With a longer wait, the call should fail instead: its deadline would
/// probably pass first.
const LONGEST_PUSHBACK: Duration = Duration::from_secs(10);

/// Do not retry.
const NEVER: HeaderValue = HeaderValue::from_static("-1");

/// `grpc-retry-pushback-ms`: when a client that retries automatically may try again. See
/// <https://github.com/grpc/proposal/blob/master/A6-client-retries.md>, "Pushback".
fn pushback(wait: Option<Duration>) -> HeaderValue {
    match wait {
        Some(wait) if wait <= LONGEST_PUSHBACK => millis(wait, random()).into(),
        _ => NEVER,
    }
}

/// A wait of at most `LONGEST_PUSHBACK` in milliseconds; never too short.
///
/// Clients wait exactly this long. Jitter of up to a tenth, or 10 ms, keeps clients that were
/// denied together from returning together.
fn millis(wait: Duration, random: u64) -> u64 {
    let millis = 1_000 * wait.as_secs() + u64::from(wait.subsec_nanos().div_ceil(1_000_000));
    let jitter = (millis / 10).max(10);
    millis + random % (jitter + 1)
}

#[cfg(test)]
mod tests;
