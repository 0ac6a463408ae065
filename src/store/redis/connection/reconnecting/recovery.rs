//! Finds out that the server of a connection answers again, while no questions are sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::client::{CONNECT_TIMEOUT, pause};
use super::{Link, LiveConnection, ReconnectingConnection, Shared};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{is_connection_lost, kind};

impl ReconnectingConnection {
    /// Makes connections and probes them until the server answers within this time again. After a
    /// refused login the pauses are longer, and the breaker does not wait for this.
    ///
    /// It also ends if a new connection is made after a probe without an answer: perhaps only the
    /// probe gets no answer, and a question does.
    pub(in crate::store::redis) async fn recovered(self, within: Duration) {
        let mut was_in_vain = false;
        loop {
            if let Ok(live) = self.0.connected().await {
                if was_in_vain {
                    return;
                }
                match self.0.probed(&live, within).await {
                    Probed::Back => return,
                    Probed::NotBack => {}
                    Probed::InVain => was_in_vain = true,
                }
            }
            if let Some(next) = self.0.look_again_at() {
                tokio::time::sleep_until(next).await;
            }
        }
    }
}

/// What a probe shows.
enum Probed {
    Back,
    NotBack,
    /// There was no answer, and the connection is given up.
    InVain,
}

impl Shared {
    /// Whether the server answers within this time. Gives up a connection that is silent for longer
    /// than connections may be.
    async fn probed(self: &Arc<Self>, live: &Arc<LiveConnection>, within: Duration) -> Probed {
        let asked = Instant::now();
        let patience = within.max(pause()).min(CONNECT_TIMEOUT);
        let Ok(answer) = tokio::time::timeout(patience, live.probe()).await else {
            self.give_up(live, StoreError::new(StoreErrorKind::Unreachable));
            return Probed::InVain;
        };
        self.note_answer(live, &answer);
        match answer {
            Ok(()) if asked.elapsed() > within => Probed::NotBack,
            Ok(()) => Probed::Back,
            // It does not serve questions yet.
            Err(error) if kind(&error) == StoreErrorKind::Busy => Probed::NotBack,
            Err(error) if is_connection_lost(&error) => Probed::InVain,
            // The user may lack a permission that only the probe needs, or the slot has moved.
            Err(_) => Probed::Back,
        }
    }

    /// When [`ReconnectingConnection::recovered`] continues; at once if there is something to wait for. If nothing is
    /// being made and nothing failed, the runtime is shutting down: continuing would loop for ever.
    fn look_again_at(&self) -> Option<Instant> {
        match &*self.link.borrow() {
            Link::Down(Some(failure)) => Some(failure.until),
            Link::Connecting => None,
            Link::Down(None) | Link::Up(_) => Some(Instant::now() + pause()),
        }
    }
}
