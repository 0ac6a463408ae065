//! `FailureMode`: what a policy decides when the store gives no answer.

use std::fmt;

use crate::error::ConfigError;

/// What a policy decides when the store gives no answer.
///
/// If the policies of a request have different modes, one that [denies](Self::Deny) refuses the
/// request, and nothing is taken from the [local](Self::Local) shares of the others. If none
/// denies, either all local shares together allow the request, and each is charged, or none is.
///
/// A [remembered](crate::store::DenyCache) denial holds in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request passes, uncounted. This is the default: an outage of the store is not one of the
    /// service.
    #[default]
    Allow,
    /// The request is refused with 503, or UNAVAILABLE over gRPC. For what must not be reached
    /// without a limit.
    Deny,
    /// This process decides by itself, with a share of the limit, in a memory store of its own. For
    /// what must stay reachable, but not without a limit. With a share of `1/n`, `n` processes
    /// together keep to the limit.
    ///
    /// ```
    /// use tower_throttle::{FailureMode, Limit, Policy, SECOND};
    ///
    /// // Ten processes, each of which may get a little more than its part.
    /// let everybody = Policy::new("everybody", Limit::gcra(10_000, SECOND))
    ///     .on_store_failure(FailureMode::Local { share: 0.15 });
    /// ```
    ///
    /// The share applies to the limit, its burst and its capacity; under [`concurrency`], to the
    /// places. Each is rounded down, but at least 1. Times stay the same, and so does a
    /// [`Penalty`](crate::Penalty), which counts the denials of the share. A request that costs
    /// more than the share ever holds is refused as by [`Deny`](Self::Deny), and no penalty counts
    /// that.
    ///
    /// Every outage begins where the last one ended: what was used of the share comes back with
    /// time, and what was used in the store does not count here. What a request has taken here it gives
    /// back here, even if the store is back. But [`charge`](crate::Limiter::charge) and
    /// [`credit`](crate::Limiter::credit) do not know where permits were taken: they change this share
    /// while the store gives no answer, and the store otherwise. [`is_local`](crate::Decision::is_local) tells that a
    /// decision was made so, and its quota headers show the share. A subject for which the memory
    /// store has no room is refused.
    ///
    /// Callers who [acquire](crate::Limiter::acquire) permits and wait for those of the share check
    /// every second whether the store is back, as does a [`ThrottleLayer`](crate::ThrottleLayer).
    /// When it is, it is asked for the permits, within what is left of a
    /// [timeout](crate::Limiter::try_acquire). Requests that the layer delays wait for as long as
    /// they were told.
    ///
    /// [`concurrency`]: crate::Limit::concurrency
    #[cfg(feature = "memory")]
    Local {
        /// The part of the limit that this process may hand out: more than 0, at most 1.
        share: f64,
    },
}

/// In words: `allow`, `deny`, or `local, 50 %` for a share of the limit in this process.
impl fmt::Display for FailureMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Deny => f.write_str("deny"),
            #[cfg(feature = "memory")]
            Self::Local { share } => write!(f, "local, {} %", share * 100.0),
        }
    }
}

impl FailureMode {
    /// The mode, if its share is valid.
    pub(crate) fn valid(self) -> Result<Self, ConfigError> {
        match self {
            Self::Allow | Self::Deny => Ok(self),
            #[cfg(feature = "memory")]
            Self::Local { share } if share > 0.0 && share <= 1.0 => Ok(self),
            #[cfg(feature = "memory")]
            Self::Local { share } => Err(ConfigError::out_of_range(
                "on_store_failure.share",
                share,
                "a share of the limit, above 0 and at most 1",
            )),
        }
    }
}
