//! HTTP: what is read from requests, and what is written into responses.

mod body;
pub(crate) mod extract;
mod headers;
mod rejection;
mod route;

pub use self::body::{BodyKind, Kept, ResponseBody, Wrapped};
pub use self::extract::HeaderCost;
#[cfg(feature = "operator")]
pub(crate) use self::extract::Ipv6Prefix;
pub(crate) use self::headers::QuotaFields;
pub use self::headers::QuotaHeaders;
pub use self::rejection::{
    OnRejection, PlainText, ProblemJson, Rejection, RejectionKind, responder,
};
pub use self::route::Route;
pub(crate) use self::route::is_preflight;
