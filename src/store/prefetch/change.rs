//! A reset or a credit in flight.

use std::sync::Arc;

use super::account::{Account, Returned, Unspent};
use super::giving_back::if_any;
use super::shared::Shared;
use crate::algorithm::Action;
use crate::store::{Check, Store};

/// Until it arrives, or nobody waits for it any more, no batch of its subject is taken: this
/// process could not tell which of the two the store decided first.
pub(super) struct Change<S: Store> {
    shared: Arc<Shared<S>>,
    key: u128,
}

/// Whether the check is a reset or a credit.
#[inline]
pub(super) fn is_change(check: &Check<'_>) -> bool {
    unspent(check).is_some()
}

/// How such a change lets go of what is held; `None` if the check is no change.
#[inline]
fn unspent(check: &Check<'_>) -> Option<Unspent> {
    match check.action {
        Action::Reset => Some(Unspent::Forget),
        Action::Credit { .. } => Some(Unspent::GiveBack),
        _ => None,
    }
}

impl<S: Store> Change<S> {
    /// Begins a change if the check is one. Adds to `returned` what must be given back before it.
    pub(super) fn begin(
        shared: &Arc<Shared<S>>,
        check: &Check<'_>,
        returned: &mut Vec<Returned>,
    ) -> Option<Self> {
        // Policies without a lease count too: this one may have had a lease before, or get one
        // meanwhile.
        let (unspent, key) = (unspent(check)?, check.policy_fingerprint());
        let clear = |account: &mut Account| account.clear(unspent);
        let of_account = shared.table.begin_change(key, clear);
        returned.extend(of_account.and_then(if_any));
        Some(Self {
            shared: Arc::clone(shared),
            key,
        })
    }
}

impl<S: Store> Drop for Change<S> {
    fn drop(&mut self) {
        self.shared.table.end_change(self.key);
    }
}
