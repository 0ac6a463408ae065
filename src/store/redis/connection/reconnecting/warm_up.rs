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
    /// A node that is down is left alone, as it is checked already.
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
