//! `AuditLog`: what was changed through the router, and by whom.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::time::Clock;

/// How many changes are kept.
const KEPT: usize = 100;

/// The last changes that were made through the router, the latest first.
pub(super) struct AuditLog {
    clock: Arc<dyn Clock>,
    changes: Mutex<VecDeque<Change>>,
}

/// What was changed, from which value to which.
#[derive(Clone, serde::Serialize)]
pub(super) struct Change {
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    /// The endpoint.
    what: &'static str,
    /// The policy, or the client; `null` for the switch.
    of: Option<String>,
    from: String,
    to: String,
    by: Option<String>,
}

impl AuditLog {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            changes: Mutex::default(),
        }
    }

    /// Notes a change, unless the value was the same before.
    pub(super) fn note(
        &self,
        by: Option<String>,
        what: &'static str,
        of: Option<String>,
        [from, to]: [String; 2],
    ) {
        if from == to {
            return;
        }
        let change = Change {
            at_ms: self.clock.wall_clock().get() / 1_000,
            what,
            of,
            from,
            to,
            by,
        };
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.truncate(KEPT - 1);
        changes.push_front(change);
    }

    pub(super) fn list(&self) -> Vec<Change> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.iter().cloned().collect()
    }
}
