//! Finds out that the server of a lane answers again, while no questions are sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::connect::{CONNECT_TIMEOUT, pause};
use super::{Held, Lane, Link, Shared};
use crate::error::{StoreError, StoreErrorKind};

impl Lane {
    /// Ends when the server answers within this time again. Keeps making a connection and asking on
    /// it. After a refused login, the pause is longer, and nobody waits for this.
    pub(in crate::store::redis) async fn recovered(self, within: Duration) {
        loop {
            if let Ok(held) = self.0.held().await
                && self.0.beats(&held, within).await
            {
                return;
            }
            if let Some(next) = self.0.look_again_at() {
                tokio::time::sleep_until(next).await;
            }
        }
    }
}

impl Shared {
    /// Whether the server has answered within this time. Gives up a connection that is silent for
    /// longer than connections may be.
    async fn beats(self: &Arc<Self>, held: &Arc<Held>, within: Duration) -> bool {
        let asked = Instant::now();
        let patience = within.max(pause()).min(CONNECT_TIMEOUT);
        match tokio::time::timeout(patience, held.beat()).await {
            Ok(beat) => {
                self.heard(held, &beat);
                beat.is_ok() && asked.elapsed() <= within
            }
            Err(_elapsed) => {
                self.give_up(held, StoreError::new(StoreErrorKind::Unreachable));
                false
            }
        }
    }

    /// When [`Lane::recovered`] continues; at once if there is something to wait for. If nothing is
    /// being made and nothing failed, the runtime is shutting down: continuing would loop for ever.
    fn look_again_at(&self) -> Option<Instant> {
        match &*self.link.borrow() {
            Link::Down(Some(failure)) => Some(failure.until),
            Link::Connecting(_) => None,
            Link::Down(None) | Link::Up(_) => Some(Instant::now() + pause()),
        }
    }
}
