//! `Local`: judges with a share of each limit while the store fails.
//!
//! What is taken here and what is taken in the store never mix. Permits are given back where they
//! were taken, which their receipt tells. Of a lease it is not always known where it was taken (a
//! late answer leaves one in the store, and its request goes on with one from here): so it is
//! renewed and ended in both, which does nothing where it is not.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::FailureMode;
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Origin, Outcome, Receipt};
use crate::error::StoreErrorKind;
use crate::store::Check;
use crate::store::memory::MemoryStore;

/// Made when it is first needed, so that nobody pays for it whose store never fails. Clones share
/// the counts.
#[derive(Clone, Default)]
pub(super) struct Local(Arc<OnceLock<MemoryStore>>);

impl Local {
    #[cfg(test)]
    pub(super) fn over(store: MemoryStore) -> Self {
        Self(Arc::new(store.into()))
    }

    /// Whether anything was ever judged here.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.0.get().is_some()
    }

    /// Judges those checks that are to be judged here; the decisions come in their order.
    pub(super) fn judge(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
        let is_judged_here = |check: &&Check<'_>| share(check).is_some();
        if !checks.iter().any(|check| is_judged_here(&check)) {
            return Decisions::default();
        }
        let is_refused = checks.iter().any(refuses);
        let here = checks.iter().filter_map(|check| {
            let action = match check.action {
                // What nobody is going to use is not taken.
                Action::Take(_) if is_refused => Action::look(),
                // Done before the store was asked, or not to be done here.
                Action::Renew(_)
                | Action::Release(_)
                | Action::Reset
                | Action::Refund { .. }
                | Action::Cancel { .. }
                | Action::Withdraw { .. } => Action::look(),
                action => action,
            };
            scaled(check, action)
        });
        let here: SmallVec<[Check<'_>; 4]> = here.collect();
        let store = self.0.get_or_init(MemoryStore::new);
        let checks = checks.iter().filter(is_judged_here);
        match store.decide(&here) {
            Ok(decisions) => {
                let pairs = checks.zip(decisions.iter());
                pairs
                    .map(|(check, decision)| judged(check, *decision, why))
                    .collect()
            }
            Err(_) => checks.map(|check| check.failed(why)).collect(),
        }
    }

    /// Does here what is not to be asked of the store alone. `Some` is what is to be asked of it
    /// instead: it only looks where all was done here.
    pub(super) fn do_here<'a>(&self, checks: &[Check<'a>]) -> Option<SmallVec<[Check<'a>; 4]>> {
        // Whoever was never judged here has nothing here.
        let store = self.0.get()?;
        let here = checks.iter().filter_map(|check| {
            let is_here = match check.action {
                Action::Renew(_) | Action::Release(_) | Action::Reset => true,
                _ => was_taken_here(check),
            };
            is_here.then(|| scaled(check, check.action)).flatten()
        });
        let here: SmallVec<[Check<'_>; 4]> = here.collect();
        if !here.is_empty() {
            // There is nothing that it could fail at: giving back needs no room.
            let _ = store.decide(&here);
        }
        checks.iter().any(was_taken_here).then(|| {
            let left = checks.iter().map(|check| match was_taken_here(check) {
                true => Check {
                    action: Action::look(),
                    ..*check
                },
                false => *check,
            });
            left.collect()
        })
    }
}

fn share(check: &Check<'_>) -> Option<f64> {
    match check.on_store_failure {
        FailureMode::Local { share } => Some(share),
        FailureMode::Allow | FailureMode::Deny => None,
    }
}

fn scaled<'a>(check: &Check<'a>, action: Action) -> Option<Check<'a>> {
    Some(Check {
        algorithm: check.algorithm.scaled(share(check)?),
        action,
        ..*check
    })
}

/// Whether the failure mode of this check alone refuses the request.
fn refuses(check: &Check<'_>) -> bool {
    check.on_store_failure == FailureMode::Deny
        && !check.is_shadow
        && matches!(check.action, Action::Take(_))
}

fn was_taken_here(check: &Check<'_>) -> bool {
    let receipt = check.action.receipt();
    receipt.is_some_and(|receipt| receipt.taken_of == Origin::LocalShare)
}

fn judged(check: &Check<'_>, decision: Decision, why: StoreErrorKind) -> Decision {
    // The limit would hold it, and does so when the store is back.
    if decision.outcome == Outcome::NeverFits && check.action.takes() <= check.algorithm.capacity()
    {
        return check.failed(why);
    }
    Decision {
        receipt: Receipt {
            taken_of: Origin::LocalShare,
            ..decision.receipt
        },
        judged_locally: Some(why),
        ..decision
    }
}
