//! While a node of a cluster is down, questions to it fail at once, until it answers again. For a
//! single server the circuit breaker does that, but the breaker stays closed while other nodes answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// An answer within this time shows that it is back.
const WITHIN: Duration = Duration::from_millis(500);
/// If no question has come for this long, the checks end, and the next question is sent.
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
    /// Records that the node has gone down, and returns the check to run. `None` if no question came
    /// since the last check: otherwise the attempts of the check itself would begin new checks for as
    /// long as the node hangs.
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
            let recovered_in_time = tokio::time::timeout(ROUND, recovered(WITHIN)).await;
            if recovered_in_time.is_ok() || !self.0.is_asked.swap(false, Ordering::Relaxed) {
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
