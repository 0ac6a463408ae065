//! HTTP: what is read from requests, and what is written into responses.

mod body;
mod cost;
pub(crate) mod extract;
mod field;
mod headers;
mod preflight;
mod rejection;
mod route;

pub use self::body::{BodyKind, Kept, ResponseBody, Wrapped};
pub use self::cost::HeaderCost;
#[cfg(feature = "operator")]
pub(crate) use self::extract::Ipv6Prefix;
pub(crate) use self::headers::QuotaFields;
pub use self::headers::QuotaHeaders;
pub(crate) use self::preflight::is_preflight;
pub use self::rejection::{
    OnRejection, PlainText, ProblemJson, Rejection, RejectionKind, responder,
};
pub use self::route::Route;
