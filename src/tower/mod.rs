//! The tower layers: one around services that answer HTTP requests, and one that makes callers of
//! any service wait.

mod admission;
mod future;
mod layer;
mod service;
mod throttle;

pub use self::future::ResponseFuture;
pub use self::layer::RateLimitLayer;
pub use self::service::RateLimit;
pub use self::throttle::{Throttle, ThrottleFuture, ThrottleLayer};
