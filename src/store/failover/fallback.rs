//! `Fallback`: decides when the store does not, by the failure mode of each check.

use smallvec::SmallVec;

use super::FailureMode;
#[cfg(feature = "memory")]
use super::local::Local;
use crate::decision::Decisions;
use crate::error::StoreErrorKind;
use crate::store::Check;
use crate::store::owned::{OwnedCheck, of_each, question};

/// Clones share the local counts.
#[derive(Clone, Default)]
pub(super) struct Fallback {
    #[cfg(feature = "memory")]
    pub(super) local: Local,
}

impl Fallback {
    pub(super) fn decide(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
        #[cfg(feature = "memory")]
        let local = self.local.judge(checks, why);
        #[cfg(feature = "memory")]
        let mut local = local.iter().copied();
        let decide = |check: &Check<'_>| match check.on_store_failure {
            FailureMode::Allow | FailureMode::Deny => check.failed(why),
            #[cfg(feature = "memory")]
            FailureMode::Local { .. } => local.next().unwrap_or_else(|| check.failed(why)),
        };
        checks.iter().map(decide).collect()
    }
}

/// The checks of a question on its way, kept for the case that it gets no answer.
pub(super) struct Kept(SmallVec<[OwnedCheck; 1]>);

impl Kept {
    pub(super) fn of(checks: &[Check<'_>]) -> Self {
        Self(of_each(checks, OwnedCheck::of))
    }

    pub(super) fn checks(&self) -> SmallVec<[Check<'_>; 4]> {
        question(&self.0)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
