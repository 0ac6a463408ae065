//! What a policy reads of a response to settle the cost: of its head, or of the end of its body.

use http::{Extensions, HeaderMap, Response, StatusCode};

mod end;

pub use self::end::{BodyEnd, Ending};
pub(crate) use self::end::{KeptHead, Metered};

/// The head of a response, borrowed: all that a cost, or a [`Feedback`](crate::Feedback), can depend on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResponseHead<'a> {
    /// The HTTP status. gRPC calls always have 200: see [`grpc_status`](Self::grpc_status).
    pub status: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The extensions: typed values that the service attaches to its response.
    pub extensions: &'a Extensions,
}

impl<'a> ResponseHead<'a> {
    /// The head of this response.
    pub fn new<B>(response: &'a Response<B>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }

    /// The head of a response of another type.
    pub fn from_parts(
        status: StatusCode,
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
    ) -> Self {
        Self {
            status,
            headers,
            extensions,
        }
    }

    /// The gRPC status in the headers, such as 16 for `UNAUTHENTICATED`. With tonic it is there if
    /// the method itself returns the error. `None` while the call goes on, if the header is not a
    /// number, and for responses of other protocols.
    ///
    /// A status from a response stream is in the trailers, even if no message precedes it, and
    /// comes too late for this: see [`Policy::count_if_at_end`](crate::Policy::count_if_at_end).
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Policy};
    ///
    /// const UNAUTHENTICATED: u32 = 16;
    ///
    /// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
    ///     .by(Header::new("x-user"))
    ///     .count_if(|response| response.grpc_status() == Some(UNAUTHENTICATED));
    /// ```
    pub fn grpc_status(&self) -> Option<u32> {
        grpc_status(self.headers)
    }
}

/// The gRPC status in headers or trailers.
fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    let text = headers.get("grpc-status")?.to_str().ok()?;
    // `parse` alone would also accept a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_status_is_a_number_in_the_headers() {
        for (value, status) in [
            ("0", Some(0)),
            ("16", Some(16)),
            ("05", Some(5)),
            ("", None),
            ("+5", None),
            ("-1", None),
            ("5 ", None),
            ("5, 5", None),
            ("NOT_FOUND", None),
            ("\u{fc}", None),
            ("4294967296", None),
        ] {
            let response = Response::builder().header("grpc-status", value);
            let response = response.body(()).unwrap();
            let read = ResponseHead::new(&response).grpc_status();
            assert_eq!(read, status, "{value:?}");
        }
        let response = Response::new(());
        assert_eq!(ResponseHead::new(&response).grpc_status(), None);
    }
}
