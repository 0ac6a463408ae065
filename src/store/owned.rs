//! `OwnedCheck`: a check that outlives its question.

use smallvec::SmallVec;

use super::{Check, FailureMode, PolicyId};
use crate::algorithm::{Action, Algorithm};
use crate::key::Subject;

/// A check that outlives its question.
#[derive(Clone)]
pub(super) struct OwnedCheck {
    policy: PolicyId,
    subject: Subject,
    pub(super) algorithm: Algorithm,
    pub(super) action: Action,
    pub(super) is_shadow: bool,
    on_store_failure: FailureMode,
}

impl OwnedCheck {
    pub(super) fn of(check: &Check<'_>) -> Self {
        Self {
            policy: check.policy.clone(),
            subject: check.subject,
            algorithm: check.algorithm,
            action: check.action,
            is_shadow: check.is_shadow,
            on_store_failure: check.on_store_failure,
        }
    }

    /// The same check with another action.
    pub(super) fn with_action(&self, action: Action) -> Self {
        Self {
            action,
            ..self.clone()
        }
    }

    pub(super) fn check(&self) -> Check<'_> {
        Check {
            policy: &self.policy,
            subject: self.subject,
            algorithm: self.algorithm,
            action: self.action,
            is_shadow: self.is_shadow,
            on_store_failure: self.on_store_failure,
        }
    }

    /// Whether it is of the same policy and algorithm as another one.
    #[cfg(feature = "redis")]
    pub(super) fn is_of_policy(&self, other: &Self) -> bool {
        self.policy.fingerprint() == other.policy.fingerprint()
            && self.algorithm.number() == other.algorithm.number()
    }
}

/// Turns owned checks back into a question.
pub(super) fn question(checks: &[OwnedCheck]) -> SmallVec<[Check<'_>; 1]> {
    checks.iter().map(OwnedCheck::check).collect()
}

/// Maps each check. Most questions have one, and a growing list takes longer.
pub(super) fn of_each<'a, T>(
    checks: &[Check<'a>],
    make: impl Fn(&Check<'a>) -> T,
) -> SmallVec<[T; 1]> {
    match checks {
        [check] => SmallVec::from_buf([make(check)]),
        // With the exact capacity; a growing list would double.
        checks => checks.iter().map(make).collect::<Vec<_>>().into(),
    }
}
