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

/// How many leases are renewed in one round trip. Enough for most processes, and no more than block
/// Redis for about two milliseconds.
const MOST_IN_ONE_TRIP: usize = 200;

impl Limiter {
    /// Renews a lease, taken at this time or later, for as long as its runtime runs.
    pub(super) fn keep_alive(&self, lease: Lease, taken: Instant, runtime: &Handle) {
        let leases = &self.0.leases;
        // By that runtime's clock: another one's may be paused, and be ahead of it.
        let at_home = runtime.enter();
        let taken = taken.min(Instant::now());
        drop(at_home);
        if let Some(hurry) = leases.add(lease, taken, runtime.id()) {
            // Not under the lock: a runtime that is shutting down drops the task at once, and its
            // `drop` locks.
            let renewals = Renewals::new(Arc::downgrade(&self.0), runtime.id(), hurry);
            runtime.spawn(renewals.run());
        }
    }

    /// Stops renewing a lease.
    pub(super) fn stop_renewing(&self, lease: LeaseId) {
        self.0.leases.remove(lease);
    }
}

/// Runs for as long as there are leases to renew.
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
                // If a store panics, the leases are tried again soon: others hold them.
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
                // One key that was overwritten must not cost all others their leases.
                Some(StoreErrorKind::CorruptValue) if together.len() > 1 => {
                    let (some, others) = together.split_at(together.len() / 2);
                    trips.extend([some, others]);
                }
                // If the key was overwritten, there is nothing left to renew.
                None | Some(StoreErrorKind::CorruptValue) => {
                    shared.leases.renewed(together, sent);
                }
                // They are tried again soon. The leases of later batches may be held in this
                // process alone, where each question renews them whether or not the store answers.
                Some(_) => {}
            }
            // A store that answers at once would keep everybody else on this thread waiting.
            yield_now().await;
        }
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        // The runtime was shut down. After an ordinary end another task may run by now.
        if !self.is_over
            && let Some(shared) = self.shared.upgrade()
        {
            shared.leases.task_is_gone(self.runtime);
        }
    }
}
