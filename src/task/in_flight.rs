//! `InFlightWork`: what is in flight to the store and nobody waits for, until somebody flushes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Counts permits being given back, settlements, questions whose callers are gone, and batches
/// taken in advance. Clones share the count.
#[derive(Clone)]
pub(crate) struct InFlightWork {
    /// Its receivers are what is in flight.
    count: watch::Sender<()>,
    /// How many wait for it.
    flushes: watch::Sender<usize>,
    /// How much has ended without having reached the store.
    lost: Arc<AtomicU64>,
}

/// Held while one of these is in flight. Dropping it says that it has not reached the store, as when
/// its runtime ends.
pub(crate) struct InFlightGuard {
    _counted: watch::Receiver<()>,
    lost: Arc<AtomicU64>,
    has_arrived: bool,
}

/// Held while somebody waits until nothing is in flight. What is tried again for lack of an answer
/// is then tried at once, and soon again.
pub(crate) struct Flush {
    in_flight_work: InFlightWork,
    lost_before: u64,
}

impl InFlightWork {
    /// Counts one more until the result is dropped.
    pub(crate) fn begin(&self) -> InFlightGuard {
        InFlightGuard {
            _counted: self.count.subscribe(),
            lost: Arc::clone(&self.lost),
            has_arrived: false,
        }
    }

    pub(crate) fn flush(&self) -> Flush {
        self.flushes.send_modify(|flushes| *flushes += 1);
        Flush {
            in_flight_work: self.clone(),
            lost_before: self.lost(),
        }
    }

    pub(crate) fn is_flushed(&self) -> bool {
        *self.flushes.borrow() > 0
    }

    /// Waits for a flush to begin.
    pub(crate) async fn flush_begins(&self) {
        // The sender lives as long as `self`.
        let _ = self.flushes.subscribe().wait_for(|it| *it > 0).await;
    }

    /// Something has not reached the store, and will not.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Default for InFlightWork {
    fn default() -> Self {
        Self {
            count: watch::Sender::new(()),
            flushes: watch::Sender::new(0),
            lost: Arc::default(),
        }
    }
}

impl InFlightGuard {
    /// It has reached the store, or there is nothing left of it that could.
    pub(crate) fn arrived(&mut self) {
        self.has_arrived = true;
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        // Before it is no longer counted.
        if !self.has_arrived {
            self.lost.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Flush {
    /// Waits until nothing is in flight. Returns whether all of it has reached the store.
    pub(crate) async fn done(self) -> bool {
        self.in_flight_work.count.closed().await;
        self.in_flight_work.lost() == self.lost_before
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.in_flight_work
            .flushes
            .send_modify(|flushes| *flushes -= 1);
    }
}
