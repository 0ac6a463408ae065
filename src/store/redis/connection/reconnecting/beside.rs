//! Probes a connection beside the questions over it, so that none of them waits for that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{LiveConnection, Shared};
use crate::error::{StoreError, StoreErrorKind};
use crate::task::within;

impl Shared {
    /// Asks something that nobody gives up, if callers have given up their questions, as they may
    /// have gone away before there could be an answer; or if the connection was idle. A server that
    /// answers this is not silent, however many callers go away. An idle connection without an
    /// answer is replaced before the next question.
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
            Some(answer) => self.heard(live, &answer),
            None if was_idle && live.is_dead() => {
                self.give_up(live, StoreError::new(StoreErrorKind::Unreachable));
            }
            None => {}
        }
    }
}
