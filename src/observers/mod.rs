//! The built-in observers.

#[cfg(feature = "metrics")]
mod metrics;
mod per_policy;
mod top_denied;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "operator")]
pub(crate) use self::per_policy::PerPolicy;
pub use self::top_denied::{TopDenied, TopDeniedBuilder, TopEntry};
