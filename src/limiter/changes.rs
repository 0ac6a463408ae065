//! Changes of a limiter, told to the log and the observers in their order.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::mode::Mode;
use crate::observe::{ChangeEvent, Observer, Observers};
use crate::trace;

/// Changes that are still to be told.
///
/// They are queued where they are made, under the lock of the rules, and told outside of it: an
/// observer may change the limiter in turn.
pub(super) struct Changes {
    queue: Mutex<Queue>,
    observers: Observers,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<ChangeEvent>,
    /// Whether somebody tells them already, who will tell those of others, too.
    is_being_told: bool,
}

impl Changes {
    pub(super) fn new(observers: Observers) -> Self {
        Self {
            queue: Mutex::default(),
            observers,
        }
    }

    pub(super) fn push(&self, event: ChangeEvent) {
        self.with(|queue| queue.pending.push_back(event));
    }

    /// Tells all that is pending, unless another thread, or a caller further up, does already.
    pub(super) fn tell(&self) {
        if self.with(|queue| std::mem::replace(&mut queue.is_being_told, true)) {
            return;
        }
        while let Some(event) = self.next() {
            log(&event);
            self.observers.on_change(&event);
        }
    }

    fn next(&self) -> Option<ChangeEvent> {
        self.with(|queue| {
            let next = queue.pending.pop_front();
            queue.is_being_told = next.is_some();
            next
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        // No step under the lock leaves anything half done.
        work(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The log needs no line for what is so from the start.
fn log(event: &ChangeEvent) {
    match event {
        ChangeEvent::Switched { is_on } => {
            let word = |is_on| if is_on { "on" } else { "off" };
            trace::info!(
                from = word(!is_on),
                to = word(*is_on),
                "rate limiting was switched"
            );
        }
        ChangeEvent::PolicyMode { policy, from, to } => {
            if let (Some(from), Some(to)) = (from, to) {
                trace::info!(policy = %policy, from = %from, to = %to, "policy mode changed");
            }
        }
        ChangeEvent::AccessList { list, from, to } => {
            trace::info!(list = *list, from = *from, to = *to, "access list replaced");
        }
        // Whoever reads the file logs more of it.
        ChangeEvent::ConfigRead { .. } => {}
    }
}

/// A policy whose mode is, or was, this one.
pub(super) fn mode_change(policy: &str, from: Option<Mode>, to: Option<Mode>) -> ChangeEvent {
    ChangeEvent::PolicyMode {
        policy: policy.to_owned(),
        from,
        to,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;

    /// Notes the switches, and switches once more while it is told of the first.
    #[derive(Default)]
    struct Nested {
        changes: OnceLock<Arc<Changes>>,
        seen: Mutex<Vec<ChangeEvent>>,
    }

    impl Observer for Nested {
        fn on_change(&self, event: &ChangeEvent) {
            let mut seen = self.seen.lock().unwrap();
            seen.push(event.clone());
            if seen.len() == 1 {
                let changes = self.changes.get().unwrap();
                changes.push(ChangeEvent::Switched { is_on: true });
                changes.tell();
            }
        }
    }

    #[test]
    fn a_change_that_an_observer_makes_is_told_after_the_one_before() {
        let nested = Arc::new(Nested::default());
        let changes = Changes::new(Observers::new(vec![Arc::clone(&nested) as _]));
        let changes = nested.changes.get_or_init(|| Arc::new(changes));
        changes.push(ChangeEvent::Switched { is_on: false });
        changes.tell();
        let told = nested.seen.lock().unwrap();
        let switches = [false, true].map(|is_on| ChangeEvent::Switched { is_on });
        assert_eq!(*told, switches);
    }
}
