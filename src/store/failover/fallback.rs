//! `Fallback`: decides when the store does not. Remembered denials decide first, then the failure
//! mode of each check.

use std::sync::Arc;

#[cfg(feature = "memory")]
use super::local::Local;
use crate::decision::Decisions;
use crate::error::StoreErrorKind;
use crate::store::{Check, FailureMode, Store};

pub(super) struct Fallback {
    store: Arc<dyn Store>,
    #[cfg(feature = "memory")]
    pub(super) local: Local,
}

impl Fallback {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            #[cfg(feature = "memory")]
            local: Local::default(),
        }
    }

    pub(super) fn decide(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
        // A burst that is too fast for the store must not get past a remembered denial.
        let remembered = self.store.remembered(checks);
        let usable = remembered.filter(|decisions| decisions.len() == checks.len());
        match usable {
            Some(remembered) => with_doubts(remembered, checks, why),
            None => self.by_modes(checks, why),
        }
    }

    fn by_modes(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
        #[cfg(feature = "memory")]
        let local = self.local.decide(checks, why);
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

/// Remembered decisions after an answer was lost. The store may have admitted the request and acquired
/// its leases. Their decisions report that, so that the caller releases them. The denial holds.
fn with_doubts(mut remembered: Decisions, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
    if why.may_have_counted() {
        for (position, check) in checks.iter().enumerate() {
            if check.action.lease().is_some() {
                remembered.fail_open(position, why);
            }
        }
    }
    remembered
}
