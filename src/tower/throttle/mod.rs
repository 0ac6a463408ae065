//! `ThrottleLayer`: a service that is ready when the whole fleet may send the next request.

mod future;
mod grant;
mod layer;
mod service;

pub use self::future::ThrottleFuture;
pub use self::layer::ThrottleLayer;
pub use self::service::Throttle;
