//! A node of a cluster that has gone down is asked no questions, and nobody waits for it, until it
//! answers again. For a single server the circuit breaker does that, but not while other nodes
//! answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// An answer within this time shows that it is back.
const WITHIN: Duration = Duration::from_millis(500);
/// If no question has come for this long, the next one finds out by itself.
const ROUND: Duration = Duration::from_secs(1);

/// Whether a node answers.
#[derive(Default)]
pub(super) struct NodeDown {
    is_down: AtomicBool,
    /// Whether a task finds out when it is back.
    is_checked: AtomicBool,
    /// Whether a question came since this was last checked.
    is_asked: AtomicBool,
}

impl NodeDown {
    /// Records that the node has gone down, and returns what is to check it, unless
    /// nobody has asked it since it was last checked: the attempts of those who check would
    /// otherwise begin this again and again, for as long as it hangs.
    pub(super) fn begin(self: &Arc<Self>) -> Option<HealthCheck> {
        if !self.is_asked.load(Ordering::Relaxed) {
            return None;
        }
        set(&self.is_down, true);
        let is_new = !self.is_checked.swap(true, Ordering::Relaxed);
        is_new.then(|| HealthCheck(Arc::clone(self)))
    }

    /// Records that the node has answered.
    pub(super) fn end(&self) {
        set(&self.is_down, false);
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Whether a question may be asked.
    pub(super) fn fail_if_down(&self) -> Result<(), StoreError> {
        set(&self.is_asked, true);
        if !self.is_down() {
            return Ok(());
        }
        Err(StoreError::with_source(
            StoreErrorKind::Unreachable,
            "the node is down",
        ))
    }
}

/// Marks a node as checked, and so as down at most, until this is dropped.
pub(super) struct HealthCheck(Arc<NodeDown>);

impl HealthCheck {
    /// `recovered` ends once an answer comes within this time.
    pub(super) async fn run<F: Future<Output = ()>>(self, recovered: impl Fn(Duration) -> F) {
        loop {
            let heard = tokio::time::timeout(ROUND, recovered(WITHIN)).await;
            if heard.is_ok() || !self.0.is_asked.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for HealthCheck {
    fn drop(&mut self) {
        self.0.is_checked.store(false, Ordering::Relaxed);
        self.0.end();
    }
}

/// Called for every question and answer, so it writes only what changes.
fn set(flag: &AtomicBool, value: bool) {
    if flag.load(Ordering::Relaxed) != value {
        flag.store(value, Ordering::Relaxed);
    }
}
