//! `UnderWay`: whether anything is on its way to the store that nobody waits for.

use tokio::sync::watch;

/// Knows what is given back or settled, questions whose callers are gone, and what is taken in advance. Clones
/// know the same.
#[derive(Clone)]
pub(crate) struct UnderWay(watch::Sender<()>);

/// Kept for as long as one such thing is on its way.
pub(crate) struct OnItsWay(#[expect(dead_code, reason = "counted")] watch::Receiver<()>);

impl UnderWay {
    /// Something begins its way.
    pub(crate) fn begin(&self) -> OnItsWay {
        OnItsWay(self.0.subscribe())
    }

    pub(crate) fn is_anything(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Waits until nothing is.
    pub(crate) async fn is_over(&self) {
        self.0.closed().await;
    }
}

impl Default for UnderWay {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}
