//! The tower layers: one limits the requests to an HTTP service, the other makes callers of any
//! service wait.

mod admission;
mod future;
mod layer;
mod service;
mod throttle;

pub use self::future::ResponseFuture;
pub use self::layer::RateLimitLayer;
pub use self::service::RateLimit;
pub use self::throttle::{Throttle, ThrottleFuture, ThrottleLayer};
