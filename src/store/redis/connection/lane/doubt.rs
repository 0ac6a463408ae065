//! A node of a cluster that has gone silent is asked no questions, and nobody waits for it, until it is heard
//! again. Of a single server the circuit breaker sees to that; it does not while other nodes answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Lane;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::duty::{Duty, Turn};

/// An answer that takes no longer ends the silence.
const WITHIN: Duration = Duration::from_millis(500);
/// Where no question has come for so long, the next one finds out by itself.
const ROUND: Duration = Duration::from_secs(1);

/// After this nobody listens any more: the runtime of the one who did is not driven.
const TURN: Duration = ROUND.saturating_mul(2);

/// Whether a node is there.
#[derive(Default)]
pub(super) struct Doubt {
    is_silent: AtomicBool,
    /// Whether somebody finds out when it is no more.
    listening: Duty,
    /// Whether a question came since this was last looked at.
    is_asked: AtomicBool,
}

impl Doubt {
    /// The node has gone silent. It is listened to over its lane.
    pub(super) fn begin(self: &Arc<Self>, lane: Lane) {
        if let Some(turn) = self.listening.begin(TURN) {
            let doubt = Arc::clone(self);
            tokio::spawn(Listening { doubt, turn }.listen(lane));
        }
        set(&self.is_silent, true);
    }

    /// It was heard.
    pub(super) fn end(&self) {
        set(&self.is_silent, false);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Whether a question may be asked.
    pub(super) fn fail_if_silent(&self) -> Result<(), StoreError> {
        if !self.is_silent() {
            return Ok(());
        }
        if !self.listening.is_taken() {
            self.end();
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
struct Listening {
    doubt: Arc<Doubt>,
    turn: Turn,
}

impl Listening {
    async fn listen(mut self, lane: Lane) {
        while self.doubt.listening.go_on(&mut self.turn, TURN) {
            let heard = tokio::time::timeout(ROUND, lane.clone().recovered(WITHIN)).await;
            if heard.is_ok() || !self.doubt.is_asked.swap(false, Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.doubt.listening.end(&self.turn) {
            self.doubt.end();
        }
    }
}

/// Every question and every answer comes through here: written is only what changes.
fn set(flag: &AtomicBool, value: bool) {
    if flag.load(Ordering::Relaxed) != value {
        flag.store(value, Ordering::Relaxed);
    }
}
