//! Prepares a connection for a question that will come soon.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::timeout;

use super::super::health::IDLE;
use super::ReconnectingConnection;

impl ReconnectingConnection {
    /// Makes a connection, or probes an idle one, for a question that will come soon. Nobody waits
    /// for this.
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
        if !shared.is_warming_up.swap(true, Ordering::Relaxed) {
            let connection = Arc::clone(shared);
            shared.home.spawn(async move {
                if let Ok(Ok(held)) = timeout(IDLE, connection.held()).await
                    && held.is_idle()
                {
                    connection.probe_beside(&held);
                }
                connection.is_warming_up.store(false, Ordering::Relaxed);
            });
        }
    }
}
