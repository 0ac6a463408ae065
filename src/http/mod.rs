//! HTTP: extractors that read requests, and what is written into responses.

mod body;
pub(crate) mod extract;
mod feedback;
#[cfg(feature = "axum")]
mod from_request;
mod headers;
mod rejection;
mod route;
mod seconds;

pub(crate) use self::body::UntilEnd;
pub use self::body::{BodyKind, Kept, ResponseBody, Wrapped};
pub use self::extract::HeaderCost;
#[cfg(feature = "operator")]
pub(crate) use self::extract::Ipv6Prefix;
pub use self::feedback::{Feedback, HttpHead, ReadHead};
#[cfg(feature = "axum")]
pub use self::from_request::NoDecision;
pub(crate) use self::headers::QuotaFields;
pub use self::headers::QuotaHeaders;
pub use self::rejection::{
    OnRejection, PlainText, ProblemJson, Rejection, RejectionKind, responder,
};
pub use self::route::Route;
pub(crate) use self::route::is_preflight;
