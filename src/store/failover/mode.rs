//! `FailureMode`: what a policy decides when the store gives no answer.

use crate::error::ConfigError;

/// What a policy decides when the store gives no answer.
///
/// When the policies of one request have different modes, one that [denies](Self::Deny) refuses the
/// request, and nothing is taken of the [local](Self::Local) shares of the others. If none denies,
/// all local shares together allow the request, and each is charged, or none is.
///
/// What is still [remembered](crate::DenyCache) to be denied is denied in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request passes, uncounted. The default: an outage of the store is not one of the
    /// service.
    #[default]
    Allow,
    /// The request is refused with 503, or UNAVAILABLE over gRPC: for limits that protect
    /// something which must not be reached unlimited.
    Deny,
    /// This process judges by itself, with a share of the limit, in a memory store of its own: for
    /// limits that protect something which must be reached all the same. With a share of `1/n`, `n`
    /// processes together keep to the limit.
    ///
    /// ```
    /// use tower_throttle::{FailureMode, Limit, Policy, SECOND};
    ///
    /// // Ten processes, of which any may get a little more than its part.
    /// let everybody = Policy::new("everybody", Limit::gcra(10_000, SECOND))
    ///     .on_store_failure(FailureMode::Local { share: 0.15 });
    /// ```
    ///
    /// The share is of the limit, and of its burst or capacity; of [`concurrency`], of the places.
    /// Each is rounded down, to 1 at least; the times stay, and so does a
    /// [`Penalty`](crate::Penalty), which counts the denials of the share. A request that costs more
    /// than the share ever holds is refused as by [`Deny`](Self::Deny).
    ///
    /// Every outage begins where the one before has ended: what was used of the share comes back
    /// with time, as always, and what was used in the store does not count here. What was taken
    /// here is given back here, also when the store is back. A decision tells by
    /// [`is_local`](crate::Decision::is_local) that it was taken so, and its quota headers show
    /// the share. A subject for which the memory store has no room is refused.
    ///
    /// Who [acquires](crate::Limiter::acquire) permits and waits for those of the share looks for the
    /// store every second, as does a [`ThrottleLayer`](crate::ThrottleLayer). When it answers, it is asked
    /// for them anew, within what is left of a [timeout](crate::Limiter::try_acquire). Requests that the
    /// layer holds up wait for what they were told.
    ///
    /// [`concurrency`]: crate::Limit::concurrency
    #[cfg(feature = "memory")]
    Local {
        /// The part of the limit that this process may give: more than 0, at most 1.
        share: f64,
    },
}

impl FailureMode {
    /// The mode, if it makes sense.
    pub(crate) fn sound(self) -> Result<Self, ConfigError> {
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
