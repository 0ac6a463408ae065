//! `Permit`: what a limiter has granted outside of a layer; `Denied`: why it did not.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::charge::{Charges, RequestCharges};
use crate::decision::{Decision, Verdict};
use crate::error::CheckError;

/// Permits that a limiter has granted: by [`admit`](crate::Limiter::admit),
/// [`admit_all`](crate::Limiter::admit_all), [`admit_up_to`](crate::Limiter::admit_up_to) or [`acquire`](crate::Limiter::acquire).
///
/// Keep it for as long as what it is for runs. Dropping it gives back the places of a
/// [concurrency](crate::Limit::concurrency) limit, whose leases are renewed until then; all else stays
/// used, as permits come back with time. See [`Limiter::flush`](crate::Limiter::flush) for what to do
/// before a process ends.
#[must_use = "dropping it gives the places of a concurrency limit back"]
pub struct Permit {
    verdict: Verdict,
    /// The number of permits of each policy of the verdict.
    granted: SmallVec<[u64; 2]>,
    /// `None` if nothing was taken that could be given back.
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

    /// The decisions of the policies that were asked, by name.
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

    /// Tells what was really used under a policy, in place of what was charged for it: charges the
    /// difference, even beyond the limit, or gives it back. Once it is told again, that counts. If the
    /// permit has several keys of the policy, it is told of each of them.
    ///
    /// It does not wait for the store: see [`Limiter::flush`](crate::Limiter::flush). A permit that is
    /// dropped without it has used what it was charged.
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
    /// If the permit is not of this policy, or the policy counts what runs at the same time, which
    /// is given back whole.
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

    /// Gives everything back, as nothing of it was used: places, and permits as far as they have not
    /// come back by themselves. What others already queue behind stays used.
    pub fn cancel(mut self) {
        if let Some(mut charges) = self.charges.take() {
            charges.cancel();
        }
    }

    /// Whether others may have the places by now, because the [lease](crate::Limit::lease) was not
    /// renewed in time: this process stood still, or could not reach the store, for longer than it
    /// lives. Once so, it stays so. A long job that must not run twice looks before each step, and
    /// ends.
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
    /// Only an answer of the store tells that a lease lives: one that this process granted by itself
    /// ([`FailureMode::Local`](crate::FailureMode::Local)) has lapsed after its first life. It is not
    /// known whether the store has lost its data, was told to forget the key, or had its clock set
    /// ahead. Without a lease there is nothing that could lapse, as under another limit or for a
    /// request that passed for lack of an answer: `false`.
    pub fn has_lapsed(&self) -> bool {
        self.charges.as_ref().is_some_and(|it| it.has_lapsed())
    }

    /// How long to wait before the permits may be used.
    pub(super) fn delay(&self) -> Duration {
        let delays = self.verdict.iter().map(|(_, decision)| decision.delay());
        delays.max().unwrap_or_default()
    }

    /// Whether this process granted them by its own share.
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

    /// Call this when the permits are there and about to be used: until then, dropping it gives
    /// everything back.
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

/// Why a permit was not granted.
///
/// With the feature `axum` it is a response, as a layer would answer; with `tonic`, `into` turns it
/// into a `Status` with all details. For another body, or another form of the answer, turn it into a
/// [`Rejection`](crate::Rejection). A layer around the handler adds quota headers, in the families
/// that it has.
///
/// A policy that does not exist, or cannot do what was asked, is told by the same type, so that `?`
/// serves for both: see [`error`](Self::error). Its response is a 500.
#[derive(Clone, PartialEq, Eq)]
pub struct Denied(Reason);

#[derive(Clone, PartialEq, Eq)]
enum Reason {
    Decisions {
        verdict: Verdict,
        /// The position of the decision that explains it.
        worst: usize,
    },
    Error(CheckError),
}

impl Denied {
    pub(super) fn by(verdict: Verdict, worst: usize) -> Self {
        Self(Reason::Decisions { verdict, worst })
    }

    /// The policy that denies, and if several do, the one with the longest wait.
    pub fn policy(&self) -> &str {
        match &self.0 {
            Reason::Error(error) => error.policy(),
            Reason::Decisions { verdict, worst } => {
                let mut each = verdict.iter();
                each.nth(*worst).map_or("", |(name, _)| name)
            }
        }
    }

    /// That policy's decision; `None` if there is an [error](Self::error) instead.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.0 {
            Reason::Error(_) => None,
            Reason::Decisions { verdict, worst } => {
                let mut each = verdict.iter();
                each.nth(*worst).map(|(_, decision)| decision)
            }
        }
    }

    /// The decisions of all policies that were asked; `None` if there is an [error](Self::error)
    /// instead.
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.0 {
            Reason::Error(_) => None,
            Reason::Decisions { verdict, .. } => Some(verdict),
        }
    }

    /// How long until the same would be admitted, if nobody else asks: the
    /// [longest wait](Decision::retry_after) of the policies that deny. `None` if waiting does not
    /// help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision()?.retry_after()
    }

    pub(super) fn has_store_failed(&self) -> bool {
        let decision = self.decision();
        decision.is_some_and(|decision| decision.store_failure().is_some())
    }

    /// Why no decision was made, if none was: a mistake in the program or its configuration.
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
