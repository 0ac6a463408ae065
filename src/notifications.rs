//! `Notifications`: what observers are notified of, in order, once each and one at a time, also of what
//! they cause themselves.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Queued under the lock of whatever changed, so that they keep its order, and delivered without it: an
/// observer may make another change.
pub(crate) struct Notifications<T>(Mutex<Queue<T>>);

struct Queue<T> {
    pending: VecDeque<T>,
    /// Whether somebody is delivering, who will deliver what others add, too.
    is_being_delivered: bool,
}

impl<T> Notifications<T> {
    pub(crate) fn push(&self, notification: T) {
        self.queue().pending.push_back(notification);
    }

    /// Delivers all that is pending, unless another thread, or a caller further up, is doing so. If
    /// `deliver` panicked, nothing would ever be delivered again.
    pub(crate) fn deliver(&self, deliver: impl Fn(T)) {
        if std::mem::replace(&mut self.queue().is_being_delivered, true) {
            return;
        }
        while let Some(notification) = self.next() {
            deliver(notification);
        }
    }

    /// The oldest one. If there is none, delivering has ended: whoever adds another delivers it.
    fn next(&self) -> Option<T> {
        let mut queue = self.queue();
        let next = queue.pending.pop_front();
        queue.is_being_delivered = next.is_some();
        next
    }

    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        // No step under the lock leaves anything half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Notifications<T> {
    fn default() -> Self {
        Self(Mutex::new(Queue {
            pending: VecDeque::new(),
            is_being_delivered: false,
        }))
    }
}
