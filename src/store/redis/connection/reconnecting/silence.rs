//! A node of a cluster that has gone silent is asked no questions, and nobody waits for it, until it
//! is heard again. For a single server the circuit breaker does that, but not while other nodes
//! answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// An answer within this time ends the silence.
const WITHIN: Duration = Duration::from_millis(500);
/// If no question has come for this long, the next one finds out by itself.
const ROUND: Duration = Duration::from_secs(1);

/// Whether a node answers.
#[derive(Default)]
pub(super) struct Silence {
    is_silent: AtomicBool,
    /// Whether a task finds out when the silence ends.
    is_listened_to: AtomicBool,
    /// Whether a question came since this was last checked.
    is_asked: AtomicBool,
}

impl Silence {
    /// Records that the node has gone silent, and returns what is to listen to it, unless
    /// nobody has asked it since it was last listened to: the attempts of those who listen would
    /// otherwise begin this again and again, for as long as it hangs.
    pub(super) fn begin(self: &Arc<Self>) -> Option<Listening> {
        if !self.is_asked.load(Ordering::Relaxed) {
            return None;
        }
        set(&self.is_silent, true);
        let is_new = !self.is_listened_to.swap(true, Ordering::Relaxed);
        is_new.then(|| Listening(Arc::clone(self)))
    }

    /// Records that the node has answered.
    pub(super) fn end(&self) {
        set(&self.is_silent, false);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Whether a question may be asked.
    pub(super) fn fail_if_silent(&self) -> Result<(), StoreError> {
        set(&self.is_asked, true);
        if !self.is_silent() {
            return Ok(());
        }
        Err(StoreError::with_source(
            StoreErrorKind::Unreachable,
            "the node has gone silent",
        ))
    }
}

/// Marks a node as listened to, and so as silent at most, until this is dropped.
pub(super) struct Listening(Arc<Silence>);

impl Listening {
    /// `recovered` ends once an answer comes within this time.
    pub(super) async fn listen<F: Future<Output = ()>>(self, recovered: impl Fn(Duration) -> F) {
        loop {
            let heard = tokio::time::timeout(ROUND, recovered(WITHIN)).await;
            if heard.is_ok() || !self.0.is_asked.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.is_listened_to.store(false, Ordering::Relaxed);
        self.0.end();
    }
}

/// Called for every question and answer, so it writes only what changes.
fn set(flag: &AtomicBool, value: bool) {
    if flag.load(Ordering::Relaxed) != value {
        flag.store(value, Ordering::Relaxed);
    }
}
