//! `Renewals`: the task that renews the leases of one runtime, in batches.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::leases::Lease;
use super::{Limiter, Shared, failure};
use crate::algorithm::{Action, LeaseId};
use crate::error::StoreErrorKind;
use crate::store::{Check, Store as _};
use crate::task::catch_panic;

/// The most leases in one round trip. Enough for most processes, and blocks Redis for no more than
/// about two milliseconds.
const MOST_IN_ONE_TRIP: usize = 200;

impl Limiter {
    /// Renews a lease, acquired at this time or later, as long as its runtime runs.
    pub(super) fn keep_alive(&self, lease: Lease, taken: Instant, runtime: &Handle) {
        let leases = &self.0.leases;
        // Use that runtime's clock: another runtime's may be paused, or ahead of it.
        let at_home = runtime.enter();
        let taken = taken.min(Instant::now());
        drop(at_home);
        if let Some(hurry) = leases.add(lease, taken, runtime.id()) {
            // Not under the lock: a runtime that is shutting down drops the task immediately, and
            // its `drop` locks.
            let renewals = Renewals::new(Arc::downgrade(&self.0), runtime.id(), hurry);
            runtime.spawn(renewals.run());
        }
    }

    /// Stops renewing a lease.
    pub(super) fn stop_renewing(&self, lease: LeaseId) {
        self.0.leases.remove(lease);
    }
}

/// Runs as long as there are leases to renew.
pub(super) struct Renewals {
    shared: Weak<Shared>,
    runtime: Id,
    /// Notified when a lease is added that is due before the next round.
    hurry: Arc<Notify>,
    is_over: bool,
}

impl Renewals {
    pub(super) fn new(shared: Weak<Shared>, runtime: Id, hurry: Arc<Notify>) -> Self {
        Self {
            shared,
            runtime,
            hurry,
            is_over: false,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(next_round) = self.next_round() {
            let asked_to_hurry = timeout_at(next_round, self.hurry.notified()).await;
            if asked_to_hurry.is_err() {
                // If a store panics, the leases are retried soon.
                let mut round = pin!(self.renew());
                poll_fn(|cx| catch_panic(|| round.as_mut().poll(cx)).unwrap_or(Poll::Ready(())))
                    .await;
            }
        }
    }

    fn next_round(&mut self) -> Option<Instant> {
        let next_round = self.shared.upgrade()?.leases.next_round(self.runtime);
        self.is_over = next_round.is_none();
        next_round
    }

    /// One round: renews all leases that are due.
    async fn renew(&self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let due = shared.leases.due(self.runtime);
        let mut trips: Vec<&[Lease]> = due.chunks(MOST_IN_ONE_TRIP).collect();
        while let Some(together) = trips.pop() {
            let sent = Instant::now();
            let answer = {
                let checks = together.iter();
                let checks = checks.map(|lease| lease.check(Action::Renew));
                shared.store.ask(&checks.collect::<Vec<Check<'_>>>())
            };
            match failure(answer).await {
                // One overwritten key must not cost all others their leases.
                Some(StoreErrorKind::CorruptValue) if together.len() > 1 => {
                    let (some, others) = together.split_at(together.len() / 2);
                    trips.extend([some, others]);
                }
                // If the key was overwritten, there is nothing to renew.
                None | Some(StoreErrorKind::CorruptValue) => {
                    shared.leases.renewed(together, sent);
                }
                // They are retried soon. The leases of later batches may exist only in this
                // process's local share, where each call renews them whether or not the store
                // answers.
                Some(_) => {}
            }
            // A store that answers immediately would block everything else on this thread.
            yield_now().await;
        }
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        // The runtime was shut down. After a normal end another task may already run.
        if !self.is_over
            && let Some(shared) = self.shared.upgrade()
        {
            shared.leases.task_is_gone(self.runtime);
        }
    }
}
