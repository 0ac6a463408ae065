//! tower: the layer and the service around anything that answers HTTP requests.

mod future;
mod layer;
mod service;

pub use self::future::ResponseFuture;
pub use self::layer::RateLimitLayer;
pub use self::service::RateLimit;
