//! The head of a request, and the timeout of a gRPC call.

use http::{Extensions, HeaderMap, HeaderName, Method, Request, Uri};

use crate::time::Micros;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The head of a request, borrowed: all that extractors and matchers can see.
///
/// Write a closure that reads it as [`extractor(|request| ..)`](crate::extractor), or annotate its
/// parameter: `|request: &RequestHead<'_>|`. Otherwise the compiler reports that type annotations
/// are needed or that the closure is not general enough.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target. Routes match its path if no router has matched the request before. Over HTTP/1.1
    /// it has no host: see [`host`](Self::host).
    pub uri: &'a Uri,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The extensions: typed values of the server and of middleware outside of the layer.
    pub extensions: &'a Extensions,
}

impl<'a> RequestHead<'a> {
    /// The head of this request.
    pub fn new<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl RequestHead<'_> {
    /// The timeout of a gRPC call. `None` if there is none or it is malformed, which is no reason
    /// to deny a call.
    pub(crate) fn grpc_timeout(&self) -> Option<Micros> {
        self.headers.get(GRPC_TIMEOUT)?.to_str().ok().and_then(read)
    }
}

/// Up to eight digits and a unit:
/// <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests>
fn read(value: &str) -> Option<Micros> {
    let unit = value.bytes().last()?;
    let digits = value.get(..value.len() - 1)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    let us = match unit {
        b'H' => number * 3_600_000_000,
        b'M' => number * 60_000_000,
        b'S' => number * 1_000_000,
        b'm' => number * 1_000,
        b'u' => number,
        b'n' => number / 1_000,
        _ => return None,
    };
    Some(Micros::new(us))
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::time::Micros;

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        for (value, us) in [
            ("1H", 3_600_000_000),
            ("2M", 120_000_000),
            ("3S", 3_000_000),
            ("250m", 250_000),
            ("7u", 7),
            ("1999n", 1),
            ("0S", 0),
            ("00000010m", 10_000),
            ("99999999H", 359_999_996_400_000_000),
        ] {
            assert_eq!(read(value), Some(Micros::new(us)), "{value:?}");
        }
    }

    #[test]
    fn a_malformed_grpc_timeout_is_none() {
        for value in [
            "",
            "S",
            "1",
            "100000000S",
            "1s",
            "1h",
            "+1S",
            "-1S",
            " 1S",
            "1 S",
            "1S ",
            "1.5S",
            "1SS",
            "0x1S",
            "1µ",
            "1é",
        ] {
            assert_eq!(read(value), None, "{value:?}");
        }
    }
}
