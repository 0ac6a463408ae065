//! Prepares a lane for a question that will come soon.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::super::signs::IDLE;
use super::Lane;

impl Lane {
    /// Makes a connection, or probes an idle one, for a question that will come soon. Nobody waits
    /// for this, and the question still checks the connection itself, as this task may be on a
    /// runtime that is not driven.
    ///
    /// A silent node is left alone, as it is listened to already.
    pub(in crate::store::redis) fn warm_up(&self) {
        let shared = &self.0;
        let is_silent = shared
            .silence
            .as_ref()
            .is_some_and(|silence| silence.is_silent());
        if is_silent || shared.live().is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // The turn lapses by itself: a connection that has answered in it is not idle before.
        if shared.warming_up.begin(IDLE).is_some() {
            let shared = Arc::clone(shared);
            runtime.spawn(async move {
                if let Ok(Ok(held)) = timeout(IDLE, shared.held()).await
                    && held.is_idle()
                {
                    shared.probe_beside(&held);
                }
            });
        }
    }
}
