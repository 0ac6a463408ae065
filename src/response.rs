//! What a policy reads of a response, when the cost is settled only by it.

use http::{Extensions, HeaderMap, Response, StatusCode};

/// The head of a response, borrowed: what a cost can be settled by.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResponseHead<'a> {
    /// The status.
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
}
