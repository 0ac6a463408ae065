//! `BodyEnd`: what a policy reads of the end of a response to settle the cost.

use http::{Extensions, HeaderMap, StatusCode};

use super::meter::Meter;
use super::{ResponseHead, grpc_status};

/// How the body of a response ended, borrowed: all that the cost can depend on when a policy
/// [settles at the end](crate::Policy::settle_at_end).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BodyEnd<'a> {
    /// Whether the client got all of it.
    pub how: Ending,
    /// The HTTP status.
    pub status: StatusCode,
    /// The trailers, if there were any.
    pub trailers: Option<&'a HeaderMap>,
    /// The response's extensions, as they were when its head was sent.
    pub extensions: &'a Extensions,
    /// What the request's [`Meter`] has counted; `None` if nobody has added to it.
    pub metered: Option<u64>,
    /// The permits that were charged when the request arrived.
    pub charged: u64,
    meter: &'a Meter,
    grpc_status: Option<u32>,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// All of it was handed to the server, or the response has no body.
    Complete,
    /// The service's body failed.
    Failed,
    /// It was dropped before its end: the client hung up.
    Dropped,
}

/// What is kept of a response until its body has ended.
pub(crate) struct KeptHead {
    status: StatusCode,
    extensions: Extensions,
    grpc_status: Option<u32>,
}

impl KeptHead {
    pub(crate) fn of(response: &ResponseHead<'_>) -> Self {
        Self {
            status: response.status,
            extensions: response.extensions.clone(),
            grpc_status: response.grpc_status(),
        }
    }

    pub(crate) fn end<'a>(
        &'a self,
        how: Ending,
        trailers: Option<&'a HeaderMap>,
        meter: &'a Meter,
        charged: u64,
    ) -> BodyEnd<'a> {
        BodyEnd {
            how,
            status: self.status,
            trailers,
            extensions: &self.extensions,
            metered: meter.total(),
            charged,
            meter,
            grpc_status: trailers.and_then(grpc_status).or(self.grpc_status),
        }
    }
}

impl BodyEnd<'_> {
    /// What the request has used by its meter: what was counted, or what was charged if nobody has
    /// added to the meter. Unless the body is [complete](Ending::Complete), the larger of the two:
    /// otherwise hanging up would make a request free.
    pub fn used(&self) -> u64 {
        self.used_by(self.metered)
    }

    /// The same by the [meter of this name](Meter::named).
    pub fn used_of(&self, name: &str) -> u64 {
        self.used_by(self.metered_as(name))
    }

    fn used_by(&self, metered: Option<u64>) -> u64 {
        match (metered, self.how) {
            (None, _) => self.charged,
            (Some(metered), Ending::Complete) => metered,
            (Some(metered), _) => metered.max(self.charged),
        }
    }

    /// What the [meter of this name](Meter::named) has counted.
    pub fn metered_as(&self, name: &str) -> Option<u64> {
        self.meter.total_of(name)
    }

    /// The gRPC status of the call, also of one that failed in the stream of its answer. `None` if the
    /// body ended without one.
    pub fn grpc_status(&self) -> Option<u32> {
        self.grpc_status
    }
}
