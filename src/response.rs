//! What a policy reads of a response, when the cost is settled only by it.

use http::{Extensions, HeaderMap, Response, StatusCode};

/// The head of a response, borrowed: what a cost can be settled by.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResponseHead<'a> {
    /// The status of HTTP; of a gRPC call this is 200 however it ends, see
    /// [`grpc_status`](Self::grpc_status).
    pub status: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// What the service has left for others to find.
    pub extensions: &'a Extensions,
}

impl<'a> ResponseHead<'a> {
    /// The head of this response.
    pub fn of<B>(response: &'a Response<B>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }

    /// How a gRPC call ended, as 16 for `UNAUTHENTICATED`, when the headers say so: of a service on
    /// tonic when the method itself returns the error. `None` when the call goes on, when what the
    /// header says is no number, and of other responses.
    ///
    /// What comes out of the stream with which a method answers stands in the trailers, also when no
    /// message was before it, and is too late for this: let a streaming method fail before it returns
    /// its stream, or count all its calls.
    ///
    /// ```
    /// use tower_throttle::{Header, Limit, MINUTE, Policy, ResponseHead};
    ///
    /// const UNAUTHENTICATED: u32 = 16;
    ///
    /// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
    ///     .by(Header::new("x-user"))
    ///     .count_if(|response: &ResponseHead<'_>| response.grpc_status() == Some(UNAUTHENTICATED));
    /// ```
    pub fn grpc_status(&self) -> Option<u32> {
        let text = self.headers.get("grpc-status")?.to_str().ok()?;
        // What `parse` takes besides is a sign.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number)
    }
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
            let told = ResponseHead::of(&response).grpc_status();
            assert_eq!(told, status, "{value:?}");
        }
        let response = Response::new(());
        assert_eq!(ResponseHead::of(&response).grpc_status(), None);
    }
}
