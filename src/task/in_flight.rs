//! `InFlightWork`: counts background work in flight to the store, so that a flush can wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Counts refunds, settlements, calls whose callers are gone, and prefetched batches. Clones share
/// the count.
#[derive(Clone)]
pub(crate) struct InFlightWork {
    /// Each receiver is one unit of work in flight.
    count: watch::Sender<()>,
    /// The number of flushes in progress.
    flushes: watch::Sender<usize>,
    /// The number of units that ended without reaching the store.
    lost: Arc<AtomicU64>,
}

/// A unit of work in flight. If it is dropped before [`arrived`](Self::arrived), as when its
/// runtime ends, the work counts as lost.
pub(crate) struct InFlightGuard {
    _counted: watch::Receiver<()>,
    lost: Arc<AtomicU64>,
    has_arrived: bool,
}

/// A flush in progress: it waits until nothing is in flight. Meanwhile failed work is retried
/// immediately and often.
pub(crate) struct Flush {
    in_flight_work: InFlightWork,
    lost_before: u64,
}

impl InFlightWork {
    /// Counts a unit of work until the guard is dropped.
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

    /// Counts a unit that will never reach the store.
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
    /// Marks the work as done: it reached the store, or there is nothing left to do.
    pub(crate) fn arrived(&mut self) {
        self.has_arrived = true;
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        // Before the receiver is dropped and the flush ends.
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
