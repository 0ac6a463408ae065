//! Reports changes of a limiter to the log and the observers, in order.

use crate::mode::{Mode, Percent};
use crate::notifications::Notifications;
use crate::observer::{ChangeEvent, Observer, Observers};
use crate::task::catch_panic;
use crate::trace;

/// Changes that are not yet reported.
///
/// They are queued under the lock of the rules and reported outside of it: an observer may change
/// the limiter in turn.
pub(super) struct Changes {
    pending: Notifications<ChangeEvent>,
    observers: Observers,
}

impl Changes {
    pub(super) fn new(observers: Observers) -> Self {
        Self {
            pending: Notifications::default(),
            observers,
        }
    }

    pub(super) fn push(&self, event: ChangeEvent) {
        self.pending.push(event);
    }

    /// Reports all pending changes, unless another thread, or a caller further up this stack, is
    /// doing so.
    pub(super) fn deliver(&self) {
        self.pending.deliver(|event| {
            // A panic would prevent the delivery of later changes.
            catch_panic(|| log(&event));
            self.observers.on_change(&event);
        });
    }
}

/// Logs a change. The initial state needs no line.
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
        ChangeEvent::EnforcedFor { policy, from, to } => {
            trace::info!(policy = %policy, from = %from, to = %to, "share of a policy changed");
        }
        ChangeEvent::AccessList { list, from, to } => {
            trace::info!(list = *list, from = *from, to = *to, "access list replaced");
        }
        // The code that reads the file logs it in more detail.
        ChangeEvent::ConfigRead { .. } => {}
    }
}

/// The event of a policy that changed its mode, was added or was removed.
pub(super) fn mode_change(policy: &str, from: Option<Mode>, to: Option<Mode>) -> ChangeEvent {
    ChangeEvent::PolicyMode {
        policy: policy.to_owned(),
        from,
        to,
    }
}

/// A policy that is enforced for another share.
pub(super) fn share_change(policy: &str, from: Percent, to: Percent) -> ChangeEvent {
    ChangeEvent::EnforcedFor {
        policy: policy.to_owned(),
        from,
        to,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, OnceLock};

    use super::*;

    /// Records the switches, and switches once more during the first event.
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
                changes.deliver();
            }
        }
    }

    #[test]
    fn a_change_that_an_observer_makes_is_delivered_after_the_one_before() {
        let nested = Arc::new(Nested::default());
        let changes = Changes::new(Observers::new(vec![Arc::clone(&nested) as _]));
        let changes = nested.changes.get_or_init(|| Arc::new(changes));
        changes.push(ChangeEvent::Switched { is_on: false });
        changes.deliver();
        let seen = nested.seen.lock().unwrap();
        let switches = [false, true].map(|is_on| ChangeEvent::Switched { is_on });
        assert_eq!(*seen, switches);
    }
}
