//! HTTP: what is read of requests, and what is written into responses.

mod body;
mod headers;
mod rejection;

pub use self::body::ResponseBody;
pub(crate) use self::headers::QuotaFields;
pub use self::headers::QuotaHeaders;
pub use self::rejection::{OnRejection, PlainText, ProblemJson, Rejection, RejectionKind};
