//! `Charge`: what one check of a policy has taken, and how that is given back.

use std::borrow::Cow;

use super::giving_back::Step;
use super::leases::Lease;
use super::quota::Quota;
use crate::algorithm::{Action, LeaseId};
use crate::decision::Receipt;

/// What one check of a policy has taken.
pub(super) struct Charge {
    pub(super) quota: Quota,
    pub(super) cost: u64,
    /// The receipt, once permits are known to be taken.
    pub(super) receipt: Option<Receipt>,
    /// Whether others may wait behind it.
    is_queued: bool,
    pub(super) lease: Option<LeaseId>,
    pub(super) counted: Counted,
}

/// Whether the store has counted what was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    No,
    /// The question may still reach it: there is no answer, or none was waited for.
    Perhaps,
    Yes,
}

impl Charge {
    /// What is about to be asked for.
    pub(super) fn asked(quota: Quota, action: &Action) -> Self {
        Self {
            cost: action.acquires(),
            receipt: None,
            is_queued: quota.algorithm.may_hold_up(action),
            lease: action.lease(),
            counted: Counted::Perhaps,
            quota,
        }
    }

    /// A step that was charged while the request runs.
    pub(super) fn of_step(quota: Quota, permits: u64, receipt: Receipt) -> Self {
        Self {
            receipt: Some(receipt),
            counted: Counted::Yes,
            ..Self::asked(quota, &Action::acquire(permits))
        }
    }

    /// An action on its permits, under the quota that they were taken of.
    pub(super) fn step(&self, action: Action) -> Step<'_> {
        Step {
            quota: Cow::Borrowed(&self.quota),
            action,
            is_in_store: self.counted != Counted::No,
        }
    }

    /// Gives back this many of its permits.
    pub(super) fn give_back(&self, permits: u64) -> Option<Step<'_>> {
        Some(self.step(self.unused(permits, self.receipt?)))
    }

    /// The lease that it may have taken.
    pub(super) fn lease(&self) -> Option<Lease> {
        Some(Lease {
            id: self.lease?,
            quota: self.quota.clone(),
        })
    }

    pub(super) fn release(&self) -> Option<Action> {
        self.lease.map(Action::Release)
    }

    /// Gives back everything, as nothing of it was used.
    pub(super) fn cancel(&self) -> Option<Action> {
        if let Some(lease) = self.lease {
            return Some(Action::Release(lease));
        }
        Some(self.unused(self.cost, self.receipt?))
    }

    pub(super) fn abandon(&self) -> Option<Action> {
        match self.is_queued {
            true => self.cancel(),
            false => self.release(),
        }
    }

    /// The action that gives back this many of the permits taken under this receipt.
    pub(super) fn unused(&self, permits: u64, receipt: Receipt) -> Action {
        // Requests that wait behind it keep the times that they were given. After a refund, a new
        // request would go on together with one of them.
        if self.is_queued {
            Action::Withdraw { permits, receipt }
        } else {
            Action::Refund { permits, receipt }
        }
    }
}
