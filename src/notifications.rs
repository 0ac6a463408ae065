//! `Notifications`: a queue of events for observers. Each is delivered once, in order and one at a
//! time, even if an observer causes another event.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Events are queued under the lock of what changed, which keeps their order, and delivered without
/// that lock: an observer may make another change.
pub(crate) struct Notifications<T>(Mutex<Queue<T>>);

struct Queue<T> {
    pending: VecDeque<T>,
    /// Whether a thread is delivering. It also delivers events that others add meanwhile.
    is_being_delivered: bool,
}

impl<T> Notifications<T> {
    pub(crate) fn push(&self, notification: T) {
        self.queue().pending.push_back(notification);
    }

    /// Delivers all pending events, unless another thread, or a caller further up this stack, is
    /// doing so. `deliver` must not panic: nothing would be delivered afterwards.
    pub(crate) fn deliver(&self, deliver: impl Fn(T)) {
        if std::mem::replace(&mut self.queue().is_being_delivered, true) {
            return;
        }
        while let Some(notification) = self.next() {
            deliver(notification);
        }
    }

    /// The oldest event. If there is none, delivery has ended, and the next caller delivers again.
    fn next(&self) -> Option<T> {
        let mut queue = self.queue();
        let next = queue.pending.pop_front();
        queue.is_being_delivered = next.is_some();
        next
    }

    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        // A panic under the lock cannot leave inconsistent data.
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
