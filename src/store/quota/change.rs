//! A reset or a credit on its way.

use std::sync::Arc;

use super::account::{Account, LetGo, Returned};
use super::giving_back::if_any;
use super::shared::Shared;
use crate::algorithm::Action;
use crate::store::{Check, Store};

/// Until it is there, or nobody waits for it, nothing is taken in advance of its subject: nobody here
/// knows which of the two the store has decided first.
pub(super) struct Change<S: Store> {
    shared: Arc<Shared<S>>,
    key: u128,
}

/// Whether it is a reset or a credit.
#[inline]
pub(super) fn is_change(check: &Check<'_>) -> bool {
    how(check).is_some()
}

/// How a change lets go of what is held, if the check is one.
#[inline]
fn how(check: &Check<'_>) -> Option<LetGo> {
    match check.action {
        Action::Reset => Some(LetGo::Forget),
        Action::Credit { .. } => Some(LetGo::GiveBack),
        _ => None,
    }
}

impl<S: Store> Change<S> {
    /// If the check is one; adds what has to be given back before it.
    pub(super) fn begin(
        shared: &Arc<Shared<S>>,
        check: &Check<'_>,
        returned: &mut Vec<Returned>,
    ) -> Option<Self> {
        // Also of a policy without a lease: it may have had one before, or get one meanwhile.
        let (how, key) = (how(check)?, check.count_fingerprint());
        let let_go = |account: &mut Account| account.let_go(how);
        let of_account = shared.table.begin_change(key, let_go);
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
