//! A node of a cluster that has gone silent is asked no questions, and nobody waits for it, until it is heard
//! again. Of a single server the circuit breaker sees to that; it does not while other nodes answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Lane;
use crate::error::{StoreError, StoreErrorKind};

/// An answer that takes no longer ends the silence.
const WITHIN: Duration = Duration::from_millis(500);
/// Where no question has come for so long, the next one finds out by itself.
const ROUND: Duration = Duration::from_secs(1);

/// Whether a node is there.
#[derive(Default)]
pub(super) struct Doubt {
    is_silent: AtomicBool,
    /// Whether somebody finds out when it is no more.
    is_watched: AtomicBool,
    /// Whether a question came since this was last looked at.
    is_asked: AtomicBool,
}

impl Doubt {
    /// The node has gone silent. It is listened to over its lane.
    pub(super) fn begin(self: &Arc<Self>, lane: Lane) {
        set(&self.is_silent, true);
        if !self.is_watched.swap(true, Ordering::Relaxed) {
            let listening = Listening(Arc::clone(self));
            tokio::spawn(listening.listen(lane));
        }
    }

    /// It was heard.
    pub(super) fn end(&self) {
        set(&self.is_silent, false);
    }

    /// Whether a question may be asked.
    pub(super) fn fail_if_silent(&self) -> Result<(), StoreError> {
        if !self.is_silent.load(Ordering::Relaxed) {
            return Ok(());
        }
        set(&self.is_asked, true);
        Err(StoreError::with_source(
            StoreErrorKind::Unreachable,
            "the node has gone silent",
        ))
    }
}

/// That a node is listened to, until this is dropped: also with its runtime.
struct Listening(Arc<Doubt>);

impl Listening {
    async fn listen(self, lane: Lane) {
        loop {
            let heard = tokio::time::timeout(ROUND, lane.clone().recovered(WITHIN)).await;
            if heard.is_ok() || !self.0.is_asked.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.is_watched.store(false, Ordering::Relaxed);
        self.0.end();
    }
}

/// Every question and every answer comes through here: written is only what changes.
fn set(flag: &AtomicBool, value: bool) {
    if flag.load(Ordering::Relaxed) != value {
        flag.store(value, Ordering::Relaxed);
    }
}
