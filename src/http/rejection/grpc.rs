//! The answer to a gRPC request that was not let through: trailers-only.
//!
//! HTTP 200 whatever happened, one HEADERS frame that ends the stream. A 429 would become
//! UNAVAILABLE at the client, which clients retry: a storm on a service that asked for less.
//! See <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

use std::fmt::Write;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};

use super::{Rejection, RejectionKind};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Which gRPC a request speaks, as far as the answer depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC-Web, which is answered in the request's own content type.
    GrpcWeb(HeaderValue),
}

impl Dialect {
    /// `None` when the request is no gRPC.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        const GRPC: &[u8] = b"application/grpc";
        const WEB: &[u8] = b"-web";
        let content_type = headers.get(CONTENT_TYPE)?;
        let rest = after(content_type.as_bytes(), GRPC)?;
        if ends_or_goes_on(rest) {
            return Some(Self::Grpc);
        }
        let rest = after(rest, WEB)?;
        let rest = after(rest, b"-text").unwrap_or(rest);
        ends_or_goes_on(rest).then(|| Self::GrpcWeb(content_type.clone()))
    }
}

/// Media types ignore case: RFC 9110, section 8.3.1.
fn after<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Whether the media type ends here, but for a suffix (`+proto`) and parameters.
fn ends_or_goes_on(rest: &[u8]) -> bool {
    matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'))
}

pub(super) fn response(dialect: Dialect, rejection: &Rejection) -> Response<Bytes> {
    let content_type = match dialect {
        Dialect::Grpc => HeaderValue::from_static("application/grpc"),
        Dialect::GrpcWeb(of_request) => of_request,
    };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, code(rejection.kind).into());
    // Percent-encoded text is always a valid value.
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&rejection.to_string())) {
        headers.insert(GRPC_MESSAGE, message);
    }
    response
}

/// <https://grpc.io/docs/guides/status-codes/>
fn code(kind: RejectionKind) -> u16 {
    const INVALID_ARGUMENT: u16 = 3;
    const PERMISSION_DENIED: u16 = 7;
    const RESOURCE_EXHAUSTED: u16 = 8;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    match kind {
        RejectionKind::QuotaExceeded | RejectionKind::NeverFits | RejectionKind::Banned => {
            RESOURCE_EXHAUSTED
        }
        RejectionKind::StoreFailed(_) => UNAVAILABLE,
        RejectionKind::Refused => PERMISSION_DENIED,
        RejectionKind::MissingKey | RejectionKind::BadCost => INVALID_ARGUMENT,
        RejectionKind::Misconfigured => INTERNAL,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(content_type: &'static str) -> Option<Dialect> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Dialect::of(&headers)
    }

    #[test]
    fn grpc_is_known_by_its_content_type() {
        for content_type in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc;charset=utf-8",
            "Application/GRPC",
        ] {
            assert_eq!(dialect(content_type), Some(Dialect::Grpc), "{content_type}");
        }
        for content_type in [
            "application/json",
            "application/grpcx",
            "application/grpc-webby",
            "application",
            "",
        ] {
            assert_eq!(dialect(content_type), None, "{content_type}");
        }
        assert_eq!(Dialect::of(&HeaderMap::new()), None);
    }

    #[test]
    fn grpc_web_is_answered_in_its_own_content_type() {
        for content_type in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpc-web-text;charset=utf-8",
        ] {
            let own = HeaderValue::from_static(content_type);
            assert_eq!(dialect(content_type), Some(Dialect::GrpcWeb(own)));
        }
    }

    #[test]
    fn messages_are_percent_encoded_outside_of_printable_ascii() {
        assert_eq!(percent_encoded("50% \"a\"\n ü"), "50%25 \"a\"%0A %C3%BC");
    }
}
