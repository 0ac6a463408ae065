//! `UnderWay`: whether anything is in flight to the store that nobody waits for.

use tokio::sync::watch;

/// Counts permits being given back, settlements, questions whose callers are gone, and batches
/// taken in advance. Clones share the count.
#[derive(Clone)]
pub(crate) struct UnderWay(watch::Sender<()>);

/// Held while one of these is in flight.
pub(crate) struct OnItsWay(#[expect(dead_code, reason = "counted")] watch::Receiver<()>);

impl UnderWay {
    /// Counts one more until the result is dropped.
    pub(crate) fn begin(&self) -> OnItsWay {
        OnItsWay(self.0.subscribe())
    }

    pub(crate) fn is_anything(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn is_over(&self) {
        self.0.closed().await;
    }
}

impl Default for UnderWay {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}
