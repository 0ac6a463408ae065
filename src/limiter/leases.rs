//! The leases of this process, renewed while their requests run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Id;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::quota::Quota;
use crate::algorithm::{Action, Algorithm, LeaseId};
use crate::store::Check;
use crate::task::{RENEWALS_IN_A_LIFE, TRIES_IN_A_LIFE};

/// A new lease for a check with this cost; `None` if it needs no lease.
#[inline]
pub(super) fn lease_for(algorithm: &Algorithm, cost: u64) -> Option<LeaseId> {
    let is_held = cost > 0 && algorithm.lease().is_some();
    is_held.then(LeaseId::new)
}

/// An acquired lease and the quota whose permits it holds.
#[derive(Clone)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) quota: Quota,
}

impl Lease {
    /// The check that applies an action to the lease.
    pub(super) fn check(&self, action: fn(LeaseId) -> Action) -> Check<'_> {
        self.quota.check(action(self.id))
    }

    pub(super) fn life(&self) -> Duration {
        self.quota
            .algorithm
            .lease()
            .unwrap_or_default()
            .to_duration()
    }

    fn renewed_every(&self) -> Duration {
        self.life() / RENEWALS_IN_A_LIFE
    }

    fn tried_every(&self) -> Duration {
        self.life() / TRIES_IN_A_LIFE
    }
}

/// The leases to renew.
///
/// One task on each runtime renews the leases that were acquired there. So a runtime that shuts
/// down, or is not driven for a while, affects only its own leases.
#[derive(Default)]
pub(super) struct Leases(Mutex<Live>);

#[derive(Default)]
struct Live {
    leases: HashMap<LeaseId, Kept>,
    /// The next round of each runtime that has a task.
    rounds: HashMap<Id, Round>,
}

struct Kept {
    lease: Lease,
    runtime: Id,
    /// The time of the next renewal.
    due: Instant,
    /// The time until which the lease is known to be valid.
    lives_until: Instant,
}

struct Round {
    at: Instant,
    /// Notified when the round was moved to an earlier time.
    earlier: Arc<Notify>,
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, Live> {
        // A panic under the lock cannot leave inconsistent data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lease that was acquired at this time or later. Returns `Some` if the runtime needs a
    /// task, with the signal for an earlier round.
    pub(super) fn add(&self, lease: Lease, taken: Instant, runtime: Id) -> Option<Arc<Notify>> {
        let due = taken + lease.renewed_every();
        let mut live = self.lock();
        let id = lease.id;
        let kept = Kept {
            lives_until: taken + lease.life(),
            lease,
            runtime,
            due,
        };
        live.leases.insert(id, kept);
        if let Some(round) = live.rounds.get_mut(&runtime) {
            if due < round.at {
                round.at = due;
                round.earlier.notify_one();
            }
            return None;
        }
        let earlier = Arc::new(Notify::new());
        let round = Round {
            at: due,
            earlier: Arc::clone(&earlier),
        };
        live.rounds.insert(runtime, round);
        Some(earlier)
    }

    pub(super) fn remove(&self, lease: LeaseId) {
        self.lock().leases.remove(&lease);
    }

    /// The next round of a runtime's task. `None` if it has no leases any more; its task then ends.
    pub(super) fn next_round(&self, runtime: Id) -> Option<Instant> {
        let mut live = self.lock();
        let next = live.of(runtime).map(|kept| kept.due).min();
        match (next, live.rounds.get_mut(&runtime)) {
            (Some(next), Some(round)) => round.at = next,
            _ => drop(live.rounds.remove(&runtime)),
        }
        next
    }

    /// The leases that a runtime's task renews now. If any is due, all that would be due before the
    /// next round are included, so that they are renewed together from then on. They are retried
    /// soon unless they are reported as [renewed](Self::renewed).
    pub(super) fn due(&self, runtime: Id) -> Vec<Lease> {
        let now = Instant::now();
        let mut live = self.lock();
        if live.of(runtime).all(|kept| kept.due > now) {
            return Vec::new();
        }
        let rounds = live.of(runtime).map(|kept| kept.lease.renewed_every());
        let next_round = now + rounds.min().unwrap_or_default();
        let kept = live.leases.values_mut();
        let due = kept.filter(|kept| kept.runtime == runtime && kept.due <= next_round);
        due.map(|kept| {
            kept.due = now + kept.lease.tried_every();
            kept.lease.clone()
        })
        .collect()
    }

    /// Records that these leases were renewed at this time or later.
    pub(super) fn renewed(&self, leases: &[Lease], at: Instant) {
        let now = Instant::now();
        let mut live = self.lock();
        for lease in leases {
            if let Some(kept) = live.leases.get_mut(&lease.id) {
                kept.due = at + lease.renewed_every();
                // Renewing an expired lease does nothing and is not an error.
                if now < kept.lives_until {
                    kept.lives_until = at + lease.life();
                }
            }
        }
    }

    /// The time until which a lease is known to be valid; `None` if it is not renewed.
    pub(super) fn lives_until(&self, lease: LeaseId) -> Option<Instant> {
        let live = self.lock();
        live.leases.get(&lease).map(|kept| kept.lives_until)
    }

    /// Records that a runtime's task has ended with its runtime.
    pub(super) fn task_is_gone(&self, runtime: Id) {
        self.lock().rounds.remove(&runtime);
    }
}

impl Live {
    fn of(&self, runtime: Id) -> impl Iterator<Item = &Kept> {
        let kept = self.leases.values();
        kept.filter(move |kept| kept.runtime == runtime)
    }
}

/// Ends the tasks with the limiter, however far away their next round is.
impl Drop for Leases {
    fn drop(&mut self) {
        for round in self.lock().rounds.values() {
            round.earlier.notify_one();
        }
    }
}
