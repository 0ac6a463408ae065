//! `Changing`: the subjects of which resets or credits are on their way.

use std::collections::HashMap;

/// Apart from the accounts, as one may be opened while a change is on its way. A subject that is only changed
/// needs none.
#[derive(Default)]
pub(super) struct Changing(HashMap<u128, usize>);

impl Changing {
    pub(super) fn begin(&mut self, key: u128) {
        *self.0.entry(key).or_default() += 1;
    }

    /// One that has begun ends; whether it was the last one of its subject.
    pub(super) fn end(&mut self, key: u128) -> bool {
        let Some(on_their_way) = self.0.get_mut(&key) else {
            return true;
        };
        *on_their_way -= 1;
        let is_last = *on_their_way == 0;
        if is_last {
            self.0.remove(&key);
            if self.0.is_empty() {
                // Nothing stays of a great many.
                self.0.shrink_to_fit();
            }
        }
        is_last
    }

    pub(super) fn has(&self, key: u128) -> bool {
        self.0.contains_key(&key)
    }
}
