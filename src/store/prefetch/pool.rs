//! `Shared`: the batches of a process, and the tasks that maintain them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::account::{Account, Returned, Unspent};
use super::table::Table;
use crate::algorithm::Action;
use crate::caught::caught;
use crate::store::deadline::within;
use crate::store::owned::{OwnedCheck, of_each, question};
use crate::store::{Answer, Check, PendingAnswer, Store, Tries, UnderWay};
use crate::time::{Clock, Micros};

/// How often batches are maintained while there are any.
const ROUND: Duration = Duration::from_millis(100);

// Bounded by `Store` because dropping it asks the store.
pub(super) struct Shared<S: Store> {
    pub(super) inner: S,
    pub(super) table: Table,
    pub(super) clock: Box<dyn Clock>,
    /// How long the round trip for a batch may take.
    pub(super) deadline: Duration,
    /// How long a batch is awaited. If its runtime is driven, it arrives or is missed earlier.
    pub(super) patience: Micros,
    /// What is taken and given back in the background.
    pub(super) under_way: UnderWay,
    /// `None` once it is being dropped.
    pub(super) this: Weak<Self>,
    /// The runtimes with a task that maintains the batches.
    pub(super) looked_after_on: Mutex<HashSet<Id>>,
}

impl<S: Store> Shared<S> {
    pub(super) fn new(
        inner: S,
        deadline: Duration,
        under_way: UnderWay,
        clock: impl Clock,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            inner,
            table: Table::new(),
            clock: Box::new(clock),
            deadline,
            patience: deadline.saturating_mul(2).into(),
            under_way,
            this: Weak::clone(this),
            looked_after_on: Mutex::default(),
        })
    }

    /// Makes sure that a task maintains the batches for as long as there are any. Must be called on
    /// a runtime with timers.
    ///
    /// Each runtime on which batches arrive maintains all of them, since another runtime may not be
    /// driven.
    pub(super) fn look_after(this: &Arc<Self>) {
        let runtime = Handle::current();
        if this.lock().insert(runtime.id()) {
            let upkeep = Upkeep {
                shared: Arc::downgrade(this),
                runtime: runtime.id(),
                is_over: false,
            };
            // Not under the lock: a runtime that is shutting down drops the task at once, and its
            // `drop` locks.
            runtime.spawn(upkeep.run());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Id>> {
        // No step under the lock leaves anything half done.
        let on = self.looked_after_on.lock();
        on.unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back permits that are too old or no longer asked for. Returns whether any account is
    /// still in use.
    pub(super) fn tidy(&self) -> bool {
        let now = self.clock.now();
        let (mut returned, mut is_in_use) = (Vec::new(), false);
        self.table.each(|account| {
            returned.extend(if_any(account.tidy(now)));
            is_in_use |= account.is_in_use();
        });
        drop(self.give_back_all(returned));
        is_in_use
    }

    /// Gives back all permits that are held, and those in flight when they arrive.
    pub(super) fn give_back_held(&self) {
        let mut returned = Vec::new();
        self.table
            .each(|account| returned.extend(if_any(account.clear(Unspent::GiveBack))));
        drop(self.give_back_all(returned));
    }
}

/// Gives back what is left, so that the rest of the fleet can have it at once.
impl<S: Store> Drop for Shared<S> {
    fn drop(&mut self) {
        self.give_back_held();
    }
}

/// The maintenance task of one runtime.
struct Upkeep<S: Store> {
    shared: Weak<Shared<S>>,
    runtime: Id,
    is_over: bool,
}

impl<S: Store> Upkeep<S> {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(ROUND).await;
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            if shared.tidy() {
                continue;
            }
            shared.lock().remove(&self.runtime);
            // A batch may have arrived in between, when this runtime still counted as maintained.
            self.is_over = !shared.tidy() || !shared.lock().insert(self.runtime);
            if self.is_over {
                return;
            }
        }
    }
}

impl<S: Store> Drop for Upkeep<S> {
    fn drop(&mut self) {
        // If the runtime is shut down, the next batch on another runtime starts a new task.
        if !self.is_over
            && let Some(shared) = self.shared.upgrade()
        {
            shared.lock().remove(&self.runtime);
        }
    }
}

/// How many accounts give back at once: enough for thousands within a second, and few compared to
/// the questions of requests.
const MOST_AT_ONCE: usize = 16;

/// What gives back an account's permits, in this order: each check with its round trip.
type Trips = Vec<(OwnedCheck, PendingAnswer)>;

impl<S: Store> Shared<S> {
    /// Gives back what an account has returned, without waiting for the answers.
    pub(super) fn give_back(&self, returned: Returned) {
        drop(self.give_back_all([returned]));
    }

    /// Gives back what several accounts have returned. Nobody needs to wait for the task.
    pub(super) fn give_back_all(
        &self,
        accounts: impl IntoIterator<Item = Returned>,
    ) -> Option<JoinHandle<()>> {
        let accounts = self.trips(accounts);
        if accounts.is_empty() {
            return None;
        }
        // Without a runtime, the permits come back with time.
        let runtime = Handle::try_current().ok()?;
        let giving_back = GivingBack {
            under_way: self.under_way.clone(),
            deadline: self.deadline,
            shared: Weak::clone(&self.this),
        };
        let mut on_its_way = self.under_way.begin();
        Some(runtime.spawn(async move {
            if giving_back.beside_each_other(accounts).await {
                on_its_way.arrived();
            }
        }))
    }

    /// Gives permits back before a question that must find them in the store. They go back whatever
    /// becomes of the question: nobody holds them any more.
    pub(super) fn ask_after(
        this: &Arc<Self>,
        accounts: Vec<Returned>,
        checks: &[Check<'_>],
    ) -> PendingAnswer {
        let (shared, given_back) = (Arc::clone(this), this.give_back_all(accounts));
        let checks = of_each(checks, OwnedCheck::of);
        Box::pin(async move {
            if let Some(given_back) = given_back {
                // An error means that its runtime has ended.
                let _ = given_back.await;
            }
            match shared.inner.ask(&question(&checks)) {
                Answer::Ready(answer) => answer,
                Answer::Pending(answer) => answer.await,
            }
        })
    }

    /// Asks the store now, so that the answers can be awaited after `self` is gone.
    fn trips(&self, accounts: impl IntoIterator<Item = Returned>) -> Vec<Trips> {
        let trip = |owned: OwnedCheck| self.trip(&owned).map(|trip| (owned, trip));
        let trips = |returned: Returned| returned.into_iter().filter_map(trip).collect();
        let accounts = accounts.into_iter().map(trips);
        accounts.filter(|trips: &Trips| !trips.is_empty()).collect()
    }

    fn trip(&self, owned: &OwnedCheck) -> Option<PendingAnswer> {
        // A store that panics has given nothing back. The permits of other accounts go back.
        match caught(|| self.inner.ask(&[owned.check()]))? {
            Answer::Pending(answer) => Some(answer),
            Answer::Ready(_) => None,
        }
    }
}

/// What an account has returned, unless that is nothing.
pub(super) fn if_any(returned: Returned) -> Option<Returned> {
    (!returned.is_empty()).then_some(returned)
}

/// How a task gives permits back. While the limiter is flushed, it asks again if the store surely
/// has not taken them back.
struct GivingBack<S: Store> {
    under_way: UnderWay,
    deadline: Duration,
    shared: Weak<Shared<S>>,
}

impl<S: Store> GivingBack<S> {
    /// A failure of one account does not hold up the others. Returns whether the store has all of
    /// it.
    async fn beside_each_other(self, accounts: Vec<Trips>) -> bool {
        let this = Arc::new(self);
        let (mut under_way, mut are_all_back) = (JoinSet::new(), true);
        for trips in accounts {
            if under_way.len() == MOST_AT_ONCE {
                are_all_back &= is_back(under_way.join_next().await);
            }
            under_way.spawn(Arc::clone(&this).one_after_the_other(trips));
        }
        while !under_way.is_empty() {
            are_all_back &= is_back(under_way.join_next().await);
        }
        are_all_back
    }

    /// With `gcra` and the buckets, an earlier batch can be given back only after the later ones.
    /// If one fails, the rest comes back with time.
    async fn one_after_the_other(self: Arc<Self>, trips: Trips) -> bool {
        for (check, trip) in trips {
            if !self.is_given_back(&check, trip).await {
                return false;
            }
        }
        true
    }

    async fn is_given_back(&self, check: &OwnedCheck, mut trip: PendingAnswer) -> bool {
        let mut tries = Tries::while_flushed();
        loop {
            match within(self.deadline, trip).await {
                Some(Ok(_)) => return true,
                Some(Err(error)) if !error.kind().may_have_counted() => {}
                // Giving back twice would create permits.
                Some(Err(_)) | None => return false,
            }
            if !tries.next(&self.under_way).await {
                return false;
            }
            let shared = self.shared.upgrade();
            match shared.and_then(|shared| shared.trip(check)) {
                Some(again) => trip = again,
                None => return false,
            }
        }
    }
}

fn is_back(joined: Option<Result<bool, JoinError>>) -> bool {
    matches!(joined, Some(Ok(true)))
}

/// A reset or a credit in flight. Until it arrives, or nobody waits for it any more, no batch of its subject is taken: this
/// process could not tell which of the two the store decided first.
pub(super) struct Change<S: Store> {
    shared: Arc<Shared<S>>,
    key: u128,
}

/// Whether the check is a reset or a credit.
#[inline]
pub(super) fn is_change(check: &Check<'_>) -> bool {
    unspent(check).is_some()
}

/// How such a change lets go of what is held; `None` if the check is no change.
#[inline]
fn unspent(check: &Check<'_>) -> Option<Unspent> {
    match check.action {
        Action::Reset => Some(Unspent::Forget),
        Action::Credit { .. } => Some(Unspent::GiveBack),
        _ => None,
    }
}

impl<S: Store> Change<S> {
    /// Begins a change if the check is one. Adds to `returned` what must be given back before it.
    pub(super) fn begin(
        shared: &Arc<Shared<S>>,
        check: &Check<'_>,
        returned: &mut Vec<Returned>,
    ) -> Option<Self> {
        // Policies without a lease count too: this one may have had a lease before, or get one
        // meanwhile.
        let (unspent, key) = (unspent(check)?, check.policy_fingerprint());
        let clear = |account: &mut Account| account.clear(unspent);
        let of_account = shared.table.begin_change(key, clear);
        returned.extend(of_account.and_then(if_any));
        Some(Self {
            shared: Arc::clone(shared),
            key,
        })
    }
}

impl<S: Store> Drop for Change<S> {
    fn drop(&mut self) {
        self.shared.table.end_change(self.key);
    }
}
