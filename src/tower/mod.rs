//! tower: the layer and the service around anything that answers HTTP requests, and those around
//! anything at all that has to wait.

mod future;
mod layer;
mod service;
mod throttle;

pub use self::future::ResponseFuture;
pub use self::layer::RateLimitLayer;
pub use self::service::RateLimit;
pub use self::throttle::{Throttle, ThrottleLayer};
