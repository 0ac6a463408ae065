//! Stores with one answer, for tests of services behind a limiter.

use std::time::Duration;

use super::{Answer, Check, Store};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Outcome};
use crate::time::Micros;

/// A store that allows everything and counts nothing, for tests that should not be limited.
///
/// ```
/// use tower_throttle::{AlwaysAllow, Limit, Limiter, MINUTE, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(AlwaysAllow, [Policy::new("api", Limit::gcra(1, MINUTE))])?;
/// for _ in 0..100 {
///     assert!(limiter.check("api", "alice").await?.is_allowed());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub struct AlwaysAllow;

impl Store for AlwaysAllow {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let allowed = |check: &Check<'_>| {
            let quota = check.algorithm.quota();
            let mut decision = Decision::unasked(Outcome::Allowed, quota);
            decision.remaining = quota.0;
            decision
        };
        Answer::Ready(Ok(checks.iter().map(allowed).collect()))
    }
}

/// A store that denies every cost above 0, for tests of rejections and of clients that retry.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::{AlwaysDeny, Limit, Limiter, MINUTE, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = AlwaysDeny::new(Duration::from_secs(7));
/// let limiter = Limiter::new(store, [Policy::new("api", Limit::gcra(100, MINUTE))])?;
/// let denied = limiter.check("api", "alice").await?;
/// assert_eq!(denied.retry_after(), Some(Duration::from_secs(7)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub struct AlwaysDeny {
    retry_after: Micros,
}

impl AlwaysDeny {
    /// A store that denies with this `retry_after`.
    pub fn new(retry_after: Duration) -> Self {
        Self {
            retry_after: retry_after.into(),
        }
    }
}

impl Store for AlwaysDeny {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let decision = |check: &Check<'_>| {
            let asks = matches!(check.action, Action::Acquire(acquire) if acquire.cost > 0);
            // A denied penalty would be a ban.
            let is_denied = asks && !check.algorithm.is_penalty();
            let outcome = match is_denied {
                true => Outcome::Denied,
                false => Outcome::Allowed,
            };
            let mut decision = Decision::unasked(outcome, check.algorithm.quota());
            if is_denied {
                decision.retry_after = self.retry_after;
                decision.reset_after = self.retry_after;
                decision.renews_after = self.retry_after;
            }
            decision
        };
        let decisions: Decisions = checks.iter().map(decision).collect();
        Answer::Ready(Ok(decisions))
    }
}
