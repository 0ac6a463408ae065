//! Probes a connection concurrently with the questions over it, and prepares one for a question that
//! will come soon.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::super::health::IDLE;
use super::{LiveConnection, ReconnectingConnection, Shared};
use crate::error::{StoreError, StoreErrorKind};
use crate::task::within;

impl Shared {
    /// Sends a probe if callers have given up their questions, or if the connection was idle. Callers
    /// may have left before there could be an answer; the probe waits long enough. If the server
    /// answers, it is not silent. An idle connection without an answer is replaced before the next
    /// question.
    pub(super) fn probe_beside(self: &Arc<Self>, live: &Arc<LiveConnection>) {
        if !live.is_being_probed.swap(true, Ordering::Relaxed) {
            let (shared, live) = (Arc::clone(self), Arc::clone(live));
            self.home.spawn(async move {
                shared.probe_for_a_while(&live).await;
                live.is_being_probed.store(false, Ordering::Relaxed);
            });
        }
    }

    async fn probe_for_a_while(self: &Arc<Self>, live: &Arc<LiveConnection>) {
        let patience = live.patience();
        let was_idle = live.is_idle();
        let answer = match was_idle {
            true => within(patience, live.probe_as_question()).await,
            false => within(patience, live.probe()).await,
        };
        match answer {
            Some(answer) => self.note_answer(live, &answer),
            None if was_idle && live.is_dead() => {
                self.give_up(live, StoreError::new(StoreErrorKind::Unreachable));
            }
            None => {}
        }
    }
}

impl ReconnectingConnection {
    /// Makes a connection, or probes an idle one, in the background for a question that will come soon.
    ///
    /// Does nothing for a node that is down, which is being checked already.
    pub(in crate::store::redis) fn warm_up(&self) {
        let shared = &self.0;
        let is_down = shared
            .node_down
            .as_ref()
            .is_some_and(|node_down| node_down.is_down());
        if is_down || shared.live().is_some() {
            return;
        }
        if !shared.is_warming_up.swap(true, Ordering::Relaxed) {
            let connection = Arc::clone(shared);
            shared.home.spawn(async move {
                if let Ok(Ok(live)) = timeout(IDLE, connection.connected()).await
                    && live.is_idle()
                {
                    connection.probe_beside(&live);
                }
                connection.is_warming_up.store(false, Ordering::Relaxed);
            });
        }
    }
}
