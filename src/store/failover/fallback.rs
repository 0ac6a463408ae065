//! `Fallback`: decides when the store does not. Remembered denials decide first, then the failure
//! mode of each check.

use std::sync::Arc;

use super::FailureMode;
#[cfg(feature = "memory")]
use super::local::Local;
use crate::decision::Decisions;
use crate::error::StoreErrorKind;
use crate::store::{Check, Store};

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
        usable.unwrap_or_else(|| self.by_modes(checks, why))
    }

    fn by_modes(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
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
