//! `Changing`: the subjects with resets or credits in flight.

use std::collections::HashMap;

/// Kept apart from the accounts, since an account may be opened while a change is in flight. A
/// subject that is only changed needs no account.
#[derive(Default)]
pub(super) struct Changing(HashMap<u128, usize>);

impl Changing {
    pub(super) fn begin(&mut self, key: u128) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Ends a change. Returns whether it was the last one of its subject.
    pub(super) fn end(&mut self, key: u128) -> bool {
        let Some(on_their_way) = self.0.get_mut(&key) else {
            return true;
        };
        *on_their_way -= 1;
        let is_last = *on_their_way == 0;
        if is_last {
            self.0.remove(&key);
            if self.0.is_empty() {
                // Frees the memory after a large number of changes.
                self.0.shrink_to_fit();
            }
        }
        is_last
    }

    pub(super) fn has(&self, key: u128) -> bool {
        self.0.contains_key(&key)
    }
}
