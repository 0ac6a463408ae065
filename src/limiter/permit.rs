//! `Permit`: permits granted outside of a layer. `Denied`: why they were not granted.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::charges::{Charges, RequestCharges};
use crate::decision::{Decision, Verdict};
use crate::error::CheckError;

/// Permits granted by [`admit`](crate::Limiter::admit), [`admit_all`](crate::Limiter::admit_all),
/// [`admit_up_to`](crate::Limiter::admit_up_to) or [`acquire`](crate::Limiter::acquire).
///
/// Keep it as long as the work runs. Dropping it releases the permits of a
/// [concurrency](crate::Limit::concurrency) limit, whose leases are renewed until then. All other
/// permits stay used, as they come back over time. Before a process ends, call
/// [`Limiter::flush`](crate::Limiter::flush).
#[must_use = "dropping it releases the permits of a concurrency limit"]
pub struct Permit {
    verdict: Verdict,
    /// The number of permits of each policy of the verdict.
    granted: SmallVec<[u64; 2]>,
    /// `None` if there is nothing to refund or release.
    charges: RequestCharges,
}

impl Permit {
    pub(super) fn new(
        verdict: Verdict,
        granted: SmallVec<[u64; 2]>,
        charges: RequestCharges,
    ) -> Self {
        Self {
            verdict,
            granted,
            charges,
        }
    }

    /// The decisions of the policies, by name.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// How many permits a policy has granted: as many as were asked for, or what
    /// [`admit_up_to`](crate::Limiter::admit_up_to) found. If the permit has several keys of the
    /// policy, those of all of them together. `None` if it is not of this policy.
    ///
    /// [`settle`](Self::settle) does not change it.
    pub fn granted(&self, policy: &str) -> Option<u64> {
        let each = self.verdict.iter().zip(&self.granted);
        let of_policy = each.filter(|((name, _), _)| *name == policy);
        of_policy
            .map(|(_, granted)| *granted)
            .reduce(u64::saturating_add)
    }

    /// Sets the actual cost under a policy: charges the difference, even beyond the limit, or
    /// refunds it. If it is called again, the last cost counts. If the permit has several keys of
    /// the policy, the cost applies to each of them.
    ///
    /// It does not wait for the store: see [`Limiter::flush`](crate::Limiter::flush). Without this
    /// call, the charged cost stays.
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("tokens", Limit::fixed_window(1_000, MINUTE));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
    /// let mut permit = limiter.admit_all([("tokens", "alice", 400)]).await?;
    /// // The answer took fewer than estimated.
    /// permit.settle("tokens", 150)?;
    /// assert_eq!(limiter.peek("tokens", "alice").await?.remaining(), 850);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// An error if the permit does not belong to this policy, or if the policy has a concurrency
    /// limit, whose permits have no cost to settle.
    pub fn settle(&mut self, policy: &str, actual: u64) -> Result<(), CheckError> {
        if self.verdict.get(policy).is_none() {
            return Err(CheckError::UnknownPolicy {
                name: policy.to_owned(),
            });
        }
        if let Some(charges) = &mut self.charges {
            if charges.are_places(policy) {
                return Err(CheckError::CannotSettle {
                    name: policy.to_owned(),
                });
            }
            charges.settle(policy, actual);
        }
        Ok(())
    }

    /// Refunds everything: releases leases, and refunds permits that have not already come back.
    /// Permits behind which others have queued stay used.
    pub fn cancel(mut self) {
        if let Some(mut charges) = self.charges.take() {
            charges.cancel();
        }
    }

    /// Whether the [lease](crate::Limit::lease) has expired, so that others may have the permits:
    /// this process was suspended, or could not reach the store, for longer than a lease lasts.
    /// Once `true`, it stays `true`. A long job that must not run twice checks this before each
    /// step.
    ///
    /// ```
    /// use tower_throttle::{Denied, Limiter};
    ///
    /// async fn export(limiter: &Limiter, pages: &[&str]) -> Result<(), Denied> {
    ///     let permit = limiter.admit("exports", "everybody").await?;
    ///     for page in pages {
    ///         if permit.has_lapsed() {
    ///             break;
    ///         }
    ///         println!("exporting {page}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// Only an answer of the store confirms that a lease is valid. A lease that this process
    /// granted itself ([`FailureMode::Local`](crate::FailureMode::Local)) expires after its first
    /// life. The result does not reflect that the store has lost its data, reset the key or had its
    /// clock set ahead. `false` if there is no lease: under another limit, or if the request was
    /// allowed because the store failed.
    pub fn has_lapsed(&self) -> bool {
        self.charges.as_ref().is_some_and(|it| it.has_lapsed())
    }

    /// The delay before the permits may be used.
    pub(super) fn delay(&self) -> Duration {
        let delays = self.verdict.iter().map(|(_, decision)| decision.delay());
        delays.max().unwrap_or_default()
    }

    /// Whether this process granted them from its local share.
    pub(super) fn is_local(&self) -> bool {
        self.verdict.iter().any(|(_, decision)| decision.is_local())
    }

    pub(super) fn has_store_failed(&self) -> bool {
        let mut each = self.verdict.iter();
        each.any(|(_, decision)| decision.store_failure().is_some())
    }

    pub(super) fn charges(&self) -> Option<&Charges> {
        self.charges.as_deref()
    }

    /// Call this when the permits are about to be used. Until then, dropping the permit refunds
    /// everything.
    pub(crate) fn begin_use(&mut self) {
        if let Some(charges) = &mut self.charges {
            charges.begin_use();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

/// Why permits were not granted.
///
/// With the feature `axum` it is a response, the same as a layer's. With `tonic`, `into` converts
/// it into a `Status` with all details. For another body, convert it into a
/// [`Rejection`](crate::Rejection). A layer around the handler adds its quota headers.
///
/// An unknown policy, or one that does not support the call, is also a `Denied`, so that `?` works
/// for both: see [`error`](Self::error). Its response is a 500.
#[derive(Clone, PartialEq, Eq)]
pub struct Denied(Reason);

#[derive(Clone, PartialEq, Eq)]
enum Reason {
    Decisions {
        verdict: Verdict,
        /// The position of the denial with the longest wait.
        worst: usize,
    },
    Error(CheckError),
}

impl Denied {
    pub(super) fn by(verdict: Verdict, worst: usize) -> Self {
        Self(Reason::Decisions { verdict, worst })
    }

    /// The policy that denies; if several do, the one with the longest wait.
    pub fn policy(&self) -> &str {
        match &self.0 {
            Reason::Error(error) => error.policy(),
            Reason::Decisions { verdict, worst } => {
                let mut each = verdict.iter();
                each.nth(*worst).map_or("", |(name, _)| name)
            }
        }
    }

    /// The decision of that [`policy`](Self::policy); `None` if there is an [error](Self::error)
    /// instead.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.0 {
            Reason::Error(_) => None,
            Reason::Decisions { verdict, worst } => {
                let mut each = verdict.iter();
                each.nth(*worst).map(|(_, decision)| decision)
            }
        }
    }

    /// The decisions of all policies; `None` if there is an [error](Self::error) instead.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.0 {
            Reason::Error(_) => None,
            Reason::Decisions { verdict, .. } => Some(verdict),
        }
    }

    /// The time until the same call would be admitted, if no other request arrives: the [longest
    /// wait](Decision::retry_after) of the policies that deny. `None` if waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }

    pub(super) fn has_store_failed(&self) -> bool {
        let decision = self.decision();
        decision.is_some_and(|decision| decision.store_failure().is_some())
    }

    /// Why the call was invalid, if it was: a mistake in the program or its configuration.
    pub fn error(&self) -> Option<&CheckError> {
        match &self.0 {
            Reason::Error(error) => Some(error),
            Reason::Decisions { .. } => None,
        }
    }
}

impl From<CheckError> for Denied {
    fn from(error: CheckError) -> Self {
        Self(Reason::Error(error))
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(decision) = self.decision() else {
            return self.error().map_or(Ok(()), |error| error.fmt(f));
        };
        write!(f, "policy {:?}: {}", self.policy(), decision.reason())?;
        match decision.retry_after() {
            Some(wait) => write!(f, ", retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for Denied {}
