//! `Notifications`: what observers are still to be told, in its order and one at a time, also of what
//! they cause themselves.

use std::collections::VecDeque;

/// Changes that nobody has been told of yet, the oldest first. Kept under the lock under which they are
/// made, and told without it: whoever is told may make another change.
pub(crate) struct Notifications<T> {
    pending: VecDeque<T>,
    /// Whether somebody tells already, who will tell what others add, too.
    is_being_told: bool,
}

impl<T> Notifications<T> {
    pub(crate) fn push(&mut self, change: T) {
        self.pending.push_back(change);
    }

    /// Whether it is the caller who has to tell all that there [is](Self::next).
    pub(crate) fn begin(&mut self) -> bool {
        let is_to_tell = !self.pending.is_empty() && !self.is_being_told;
        self.is_being_told |= is_to_tell;
        is_to_tell
    }

    /// What to tell next. `None` ends the telling.
    pub(crate) fn next(&mut self) -> Option<T> {
        let next = self.pending.pop_front();
        self.is_being_told = next.is_some();
        next
    }
}

impl<T> Default for Notifications<T> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            is_being_told: false,
        }
    }
}
