//! `Local`: decides with a share of each limit while the store fails.
//!
//! Local and stored counts never mix. Permits are given back where they were acquired, which their
//! receipt contains. That is not always known for a lease: after a late answer there may be one in the
//! store while the request holds a local one. So leases are renewed and released in both, which does
//! nothing where there is none.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Origin, Receipt};
use crate::error::StoreErrorKind;
use crate::store::memory::MemoryStore;
use crate::store::{Check, FailureMode};

/// The local store, made on first use. Clones share the counts.
#[derive(Clone, Default)]
pub(super) struct Local(Arc<OnceLock<MemoryStore>>);

impl Local {
    #[cfg(test)]
    pub(super) fn over(store: MemoryStore) -> Self {
        Self(Arc::new(store.into()))
    }

    /// Whether anything was ever decided here.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.0.get().is_some()
    }

    /// Decides the checks that have a local share. Their decisions come in the same order.
    pub(super) fn decide(&self, checks: &[Check<'_>], why: StoreErrorKind) -> Decisions {
        let is_decided_here = |check: &&Check<'_>| share(check).is_some();
        if !checks.iter().any(|check| is_decided_here(&check)) {
            return Decisions::default();
        }
        let is_refused = checks.iter().any(refuses);
        let here = checks.chunk_by(are_of_one_policy).flat_map(|policy| {
            // A policy in shadow refuses nothing, but cannot decide beyond its share, either.
            let takes_nothing = is_refused || policy.iter().any(is_beyond_share);
            policy.iter().filter_map(move |check| {
                let action = match check.action {
                    Action::Acquire(_) if takes_nothing => Action::look(),
                    // `do_here` did these before the store was asked, or they are for the store alone.
                    Action::Renew(_)
                    | Action::Release(_)
                    | Action::Reset
                    | Action::Refund { .. }
                    | Action::Cancel { .. }
                    | Action::Withdraw { .. } => Action::look(),
                    action => action,
                };
                scaled(check, action)
            })
        });
        let here: SmallVec<[Check<'_>; 4]> = here.collect();
        let store = self.0.get_or_init(MemoryStore::new);
        let checks = checks.iter().filter(is_decided_here);
        match store.decide(&here) {
            Ok(decisions) => {
                let pairs = checks.zip(decisions.iter());
                pairs
                    .map(|(check, decision)| decided(check, *decision, why))
                    .collect()
            }
            Err(_) => checks.map(|check| check.failed(why)).collect(),
        }
    }

    /// Carries out the actions on local permits. Returns the checks to ask the store instead, if any
    /// were carried out here: for those it only looks.
    pub(super) fn do_here<'a>(&self, checks: &[Check<'a>]) -> Option<SmallVec<[Check<'a>; 4]>> {
        // If nothing was ever decided here, there is nothing to give back.
        let store = self.0.get()?;
        let here = checks.iter().filter_map(|check| {
            let is_here = match check.action {
                Action::Renew(_) | Action::Release(_) | Action::Reset => true,
                _ => was_acquired_here(check),
            };
            is_here.then(|| scaled(check, check.action)).flatten()
        });
        let here: SmallVec<[Check<'_>; 4]> = here.collect();
        if !here.is_empty() {
            // This cannot fail: giving back needs no room.
            let _ = store.decide(&here);
        }
        checks.iter().any(was_acquired_here).then(|| {
            let left = checks.iter().map(|check| match was_acquired_here(check) {
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

/// Whether a check is about the same policy as the one before it: about a further rate, or its
/// penalty.
fn are_of_one_policy(_: &Check<'_>, next: &Check<'_>) -> bool {
    next.policy.extra_rate().is_some() || next.algorithm.is_penalty()
}

/// Whether the failure mode of this check alone refuses the request.
fn refuses(check: &Check<'_>) -> bool {
    let is_asked = !check.is_shadow && matches!(check.action, Action::Acquire(_));
    is_asked && (check.on_store_failure == FailureMode::Deny || is_beyond_share(check))
}

/// Whether its cost fits the whole limit but not the share; it fits again once the store is back.
fn is_beyond_share(check: &Check<'_>) -> bool {
    let (Some(here), Action::Acquire(acquire)) = (scaled(check, check.action), &check.action)
    else {
        return false;
    };
    here.algorithm.never_fits(acquire) && !check.algorithm.never_fits(acquire)
}

fn was_acquired_here(check: &Check<'_>) -> bool {
    let receipt = check.action.receipt();
    receipt.is_some_and(|receipt| receipt.taken_of == Origin::LocalShare)
}

fn decided(check: &Check<'_>, decision: Decision, why: StoreErrorKind) -> Decision {
    if is_beyond_share(check) {
        return Decision {
            limit: decision.limit,
            ..check.failed(why)
        };
    }
    Decision {
        receipt: Receipt {
            taken_of: Origin::LocalShare,
            ..decision.receipt
        },
        decided_locally: Some(why),
        ..decision
    }
}
