//! The leases of this process: renewed together while what they were taken for runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Limiter, Shared};
use crate::algorithm::{Action, Algorithm, LeaseId};
use crate::key::Subject;
use crate::store::{Answer, Check};

/// So many leases are renewed in one trip: enough for most processes, and not so many that the
/// script holds up others.
const MOST_IN_ONE_TRIP: usize = 500;

/// A lease is renewed when a third of its life is over, so that two renewals may fail.
const RENEWALS_IN_A_LIFE: u32 = 3;

/// The leases that are to be kept alive.
#[derive(Default)]
pub(super) struct Leases {
    live: Mutex<Live>,
    /// Told when a lease enters that needs renewals more often than those before.
    hurry: Arc<Notify>,
}

#[derive(Default)]
struct Live {
    leases: HashMap<LeaseId, Leased>,
    /// How often the task looks after them; `None` when there is no task.
    every: Option<Duration>,
}

/// What a lease holds permits of.
pub(super) struct Leased {
    position: usize,
    subject: Subject,
    algorithm: Algorithm,
    renewed: Instant,
}

impl Leased {
    pub(super) fn new(position: usize, subject: Subject, algorithm: Algorithm) -> Self {
        Self {
            position,
            subject,
            algorithm,
            renewed: Instant::now(),
        }
    }

    /// The longest time between two renewals.
    fn renewed_every(&self) -> Duration {
        let life = self.algorithm.lease().unwrap_or_default();
        life.to_duration() / RENEWALS_IN_A_LIFE
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, Live> {
        // No step under the lock leaves anything half done.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limiter {
    /// Renews a lease from now on.
    pub(super) fn keep_alive(&self, lease: LeaseId, leased: Leased) {
        let often = leased.renewed_every();
        let mut live = self.0.leases.lock();
        live.leases.insert(lease, leased);
        match live.every {
            Some(every) if every <= often => {}
            Some(_) => {
                live.every = Some(often);
                self.0.leases.hurry.notify_one();
            }
            None => {
                // Without a runtime nothing is renewed, and the lease lapses.
                if let Ok(runtime) = Handle::try_current() {
                    live.every = Some(often);
                    let hurry = Arc::clone(&self.0.leases.hurry);
                    let task = Task(Arc::downgrade(&self.0));
                    runtime.spawn(async move { task.run(&hurry).await });
                }
            }
        }
    }

    /// Renews a lease no longer.
    pub(super) fn let_lapse(&self, lease: LeaseId) {
        self.0.leases.lock().leases.remove(&lease);
    }
}

/// The task that renews all leases of a limiter, for as long as there are any.
struct Task(Weak<Shared>);

impl Task {
    async fn run(self, hurry: &Notify) {
        while let Some(every) = self.next_round() {
            let asked_to_hurry = tokio::time::timeout(every, hurry.notified()).await;
            if asked_to_hurry.is_err() {
                self.renew(every).await;
            }
        }
    }

    /// How long until the next round; `None` when there is nothing left to renew.
    fn next_round(&self) -> Option<Duration> {
        let shared = self.0.upgrade()?;
        let mut live = shared.leases.lock();
        live.every = live.leases.values().map(Leased::renewed_every).min();
        live.every
    }

    /// Renews what would not live to see the round after the next.
    async fn renew(&self, every: Duration) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let now = Instant::now();
        let due: Vec<_> = {
            let mut live = shared.leases.lock();
            let leases = live.leases.iter_mut();
            let due = leases.filter(|(_, leased)| {
                now.duration_since(leased.renewed) + every > leased.renewed_every()
            });
            due.map(|(lease, leased)| {
                leased.renewed = now;
                (*lease, leased.position, leased.subject, leased.algorithm)
            })
            .collect()
        };
        for together in due.chunks(MOST_IN_ONE_TRIP) {
            let checks: Vec<Check<'_>> = together
                .iter()
                .map(|(lease, position, subject, algorithm)| {
                    let policy = &shared.policies[*position];
                    policy.check(*subject, *algorithm, Action::Renew(*lease))
                })
                .collect();
            if let Answer::Pending(answer) = shared.store.ask(&checks) {
                // Whatever it is: the next round tries again.
                let _ = answer.await;
            }
        }
    }
}

impl Drop for Task {
    /// Also when its runtime is shut down, so that another one can take over.
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.leases.lock().every = None;
        }
    }
}
