//! The answer to a gRPC request that was not let through: trailers-only.
//!
//! Always HTTP 200, in one HEADERS frame that ends the stream. Clients would take a 429 for
//! UNAVAILABLE and retry it: a retry storm on a service that asked for less. See
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
//!
//! gRPC-Web is answered in the same way; its clients read the response's headers:
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md>.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{Class, Rejection, number};

mod base64;
mod details;
mod dialect;
mod message;
mod protobuf;
mod pushback;

pub(super) use self::dialect::Dialect;

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
    let message = message::of(rejection);
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, code.into());
    // Percent-encoded text and base64 are always valid values.
    if let Ok(message) = HeaderValue::try_from(message::percent_encoded(&message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(status) = details::status(rejection, code, &message)
        && let Ok(details) = HeaderValue::try_from(base64::unpadded(status.as_ref()))
    {
        headers.insert(GRPC_STATUS_DETAILS, details);
    }
    headers.insert(GRPC_RETRY_PUSHBACK, pushback::after(wait(rejection)));
    response
}

/// Makes the pushback no shorter than this.
pub(super) fn prolong(headers: &mut HeaderMap, secs: u64) {
    let least = Duration::from_secs(secs);
    let told = number(headers, &GRPC_RETRY_PUSHBACK).map(Duration::from_millis);
    if told.is_some_and(|told| told < least) {
        headers.insert(GRPC_RETRY_PUSHBACK, pushback::after(Some(least)));
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

/// How long the client should wait; `None` if waiting does not help.
///
/// The exact time, or the whole seconds where those are less. They are when requests in flight have
/// to end: they then say when to look again, while the exact time is when leases lapse, for which
/// nobody waits.
fn wait(rejection: &Rejection) -> Option<Duration> {
    let secs = Duration::from_secs(rejection.retry_after_secs?);
    Some(rejection.retry_after?.min(secs))
}

#[cfg(test)]
mod tests;
