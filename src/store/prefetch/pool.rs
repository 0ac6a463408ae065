//! `Pool`: the permits that this process holds in advance, and the tasks that maintain them. They
//! are given back in order within an account, and concurrently across accounts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::account::{Leftover, Refunds};
use super::table::Table;
use crate::algorithm::Action;
use crate::store::check::{OwnedCheck, of_each, question};
use crate::store::{Answer, Check, PendingAnswer, Store};
use crate::task::{InFlightWork, Tries, catch_panic, within};
use crate::time::{Clock, Micros};

/// How often batches are maintained while there are any.
const ROUND: Duration = Duration::from_millis(100);

/// How many accounts give back at once: enough for thousands within a second, and few compared to
/// the questions of requests.
const MAX_CONCURRENT: usize = 16;

// Bounded by `Store` because dropping it asks the store.
pub(super) struct Pool<S: Store> {
    pub(super) inner: S,
    pub(super) table: Table,
    pub(super) clock: Box<dyn Clock>,
    /// How long the round trip for a batch may take.
    pub(super) deadline: Duration,
    /// How long a batch is awaited. If its runtime is driven, it arrives or is missed earlier.
    pub(super) patience: Micros,
    /// What is taken and given back in the background.
    pub(super) in_flight: InFlightWork,
    this: Weak<Self>,
    /// The runtimes with a task that maintains the batches.
    pub(super) maintained_on: Mutex<HashSet<Id>>,
}

impl<S: Store> Pool<S> {
    pub(super) fn new(
        inner: S,
        deadline: Duration,
        in_flight: InFlightWork,
        clock: impl Clock,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            inner,
            table: Table::new(),
            clock: Box::new(clock),
            deadline,
            patience: deadline.saturating_mul(2).into(),
            in_flight,
            this: Weak::clone(this),
            maintained_on: Mutex::default(),
        })
    }

    /// Makes sure that a task maintains the batches for as long as there are any. Must be called on
    /// a runtime with timers.
    ///
    /// Each runtime on which batches arrive maintains all of them, since another runtime may not be
    /// driven.
    pub(super) fn maintain(this: &Arc<Self>) {
        let runtime = Handle::current();
        if this.lock().insert(runtime.id()) {
            let upkeep = Upkeep {
                pool: Arc::downgrade(this),
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
        let on = self.maintained_on.lock();
        on.unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back permits that are too old or of idle subjects. Returns whether any account is still in
    /// use.
    fn tidy(&self) -> bool {
        let now = self.clock.now();
        let (mut refunds, mut is_in_use) = (Vec::new(), false);
        for mut accounts in self.table.shards() {
            for account in accounts.iter_mut() {
                let of_account = account.tidy(now);
                if !of_account.is_empty() {
                    refunds.push(of_account);
                }
                is_in_use |= account.is_in_use();
            }
        }
        drop(self.give_back_all(refunds));
        is_in_use
    }

    /// Gives back all permits that are held, and those in flight when they arrive.
    pub(super) fn give_back_held(&self) {
        let mut refunds = Vec::new();
        for mut accounts in self.table.shards() {
            let of_each = accounts.iter_mut().map(|it| it.clear(Leftover::GiveBack));
            refunds.extend(of_each.filter(|refunds| !refunds.is_empty()));
        }
        drop(self.give_back_all(refunds));
    }

    /// Gives back permits of an account, without waiting for the answers.
    pub(super) fn give_back(&self, refunds: Refunds) {
        drop(self.give_back_all([refunds]));
    }

    /// Gives back permits of several accounts, in a task that need not be awaited.
    fn give_back_all(&self, accounts: impl IntoIterator<Item = Refunds>) -> Option<JoinHandle<()>> {
        // The store is asked now, so that the answers can be awaited after `self` is gone.
        let accounts: Vec<GiveBacks> = accounts
            .into_iter()
            .map(|refunds| self.begin_all(refunds))
            .filter(|started| !started.is_empty())
            .collect();
        if accounts.is_empty() {
            return None;
        }
        // Without a runtime, the permits come back with time.
        let runtime = Handle::try_current().ok()?;
        let task = GiveBackTask {
            in_flight: self.in_flight.clone(),
            deadline: self.deadline,
            pool: Weak::clone(&self.this),
        };
        let mut in_flight = self.in_flight.begin();
        Some(runtime.spawn(async move {
            if task.all(accounts).await {
                in_flight.arrived();
            }
        }))
    }

    fn begin_all(&self, refunds: Refunds) -> GiveBacks {
        let begin = |refund: OwnedCheck| self.begin(&refund).map(|answer| (refund, answer));
        refunds.into_iter().filter_map(begin).collect()
    }

    fn begin(&self, refund: &OwnedCheck) -> Option<PendingAnswer> {
        // A store that panics has given nothing back. The permits of other accounts go back.
        match catch_panic(|| self.inner.ask(&[refund.check()]))? {
            Answer::Pending(answer) => Some(answer),
            Answer::Ready(_) => None,
        }
    }

    /// Gives permits back before a question that must find them in the store, even if the question is
    /// dropped, since the account no longer holds them.
    pub(super) fn ask_after(
        this: &Arc<Self>,
        accounts: Vec<Refunds>,
        checks: &[Check<'_>],
    ) -> PendingAnswer {
        let (pool, given_back) = (Arc::clone(this), this.give_back_all(accounts));
        let checks = of_each(checks, OwnedCheck::of);
        Box::pin(async move {
            if let Some(given_back) = given_back {
                // An error means that its runtime has ended.
                let _ = given_back.await;
            }
            match pool.inner.ask(&question(&checks)) {
                Answer::Ready(answer) => answer,
                Answer::Pending(answer) => answer.await,
            }
        })
    }
}

/// Gives back what is left, so that the rest of the fleet can have it at once.
impl<S: Store> Drop for Pool<S> {
    fn drop(&mut self) {
        self.give_back_held();
    }
}

/// The maintenance task of one runtime.
struct Upkeep<S: Store> {
    pool: Weak<Pool<S>>,
    runtime: Id,
    is_over: bool,
}

impl<S: Store> Upkeep<S> {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(ROUND).await;
            let Some(pool) = self.pool.upgrade() else {
                return;
            };
            if pool.tidy() {
                continue;
            }
            pool.lock().remove(&self.runtime);
            // A batch may have arrived in between, when this runtime still counted as maintained.
            self.is_over = !pool.tidy() || !pool.lock().insert(self.runtime);
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
            && let Some(pool) = self.pool.upgrade()
        {
            pool.lock().remove(&self.runtime);
        }
    }
}

/// What gives back an account's permits, in this order, each with the store's answer.
type GiveBacks = Vec<(OwnedCheck, PendingAnswer)>;

/// Waits until permits are given back. While the limiter is flushed, it asks again if the store
/// surely has not taken them back.
struct GiveBackTask<S: Store> {
    in_flight: InFlightWork,
    deadline: Duration,
    pool: Weak<Pool<S>>,
}

impl<S: Store> GiveBackTask<S> {
    /// A failure of one account does not hold up the others. Returns whether the store has all of
    /// it.
    async fn all(self, accounts: Vec<GiveBacks>) -> bool {
        let this = Arc::new(self);
        let (mut tasks, mut are_all_back) = (JoinSet::new(), true);
        for account in accounts {
            if tasks.len() == MAX_CONCURRENT {
                are_all_back &= is_back(tasks.join_next().await);
            }
            tasks.spawn(Arc::clone(&this).of_account(account));
        }
        while !tasks.is_empty() {
            are_all_back &= is_back(tasks.join_next().await);
        }
        are_all_back
    }

    /// With `gcra` and the buckets, an earlier batch can be given back only after the later ones.
    /// If one fails, the rest comes back with time.
    async fn of_account(self: Arc<Self>, account: GiveBacks) -> bool {
        for (refund, answer) in account {
            if !self.is_given_back(&refund, answer).await {
                return false;
            }
        }
        true
    }

    async fn is_given_back(&self, refund: &OwnedCheck, mut answer: PendingAnswer) -> bool {
        let mut tries = Tries::while_flushed();
        loop {
            match within(self.deadline, answer).await {
                Some(Ok(_)) => return true,
                Some(Err(error)) if !error.kind().may_have_counted() => {}
                // Giving back twice would create permits.
                Some(Err(_)) | None => return false,
            }
            if !tries.next(&self.in_flight).await {
                return false;
            }
            let pool = self.pool.upgrade();
            match pool.and_then(|pool| pool.begin(refund)) {
                Some(again) => answer = again,
                None => return false,
            }
        }
    }
}

fn is_back(joined: Option<Result<bool, JoinError>>) -> bool {
    matches!(joined, Some(Ok(true)))
}

/// A reset, a hold or a credit in flight. Until it is answered or dropped, no batch of its subject is taken, since
/// the order in which the store decides both would be unknown.
pub(super) struct ResetGuard<S: Store> {
    pool: Arc<Pool<S>>,
    key: u128,
}

/// What happens to the permits held, if the check is a reset, a hold or a credit.
#[inline]
fn leftover(check: &Check<'_>) -> Option<Leftover> {
    match check.action {
        // What is held here must not be handed out while nothing may go on.
        Action::Reset | Action::Hold { .. } => Some(Leftover::Forget),
        Action::Credit { .. } => Some(Leftover::GiveBack),
        _ => None,
    }
}

/// Whether the check is a reset, a hold or a credit.
#[inline]
pub(super) fn is_reset(check: &Check<'_>) -> bool {
    leftover(check).is_some()
}

impl<S: Store> ResetGuard<S> {
    /// Begins a reset if the check is one. Adds what must be given back before it to `refunds`.
    pub(super) fn begin(
        pool: &Arc<Pool<S>>,
        check: &Check<'_>,
        refunds: &mut Vec<Refunds>,
    ) -> Option<Self> {
        // Policies without prefetch count too: this one may have had it before, or get it
        // meanwhile.
        let (leftover, key) = (leftover(check)?, check.policy_fingerprint());
        let mut entry = pool.table.entry(key);
        entry.begin_reset();
        if let Some(account) = entry.account() {
            let of_account = account.clear(leftover);
            if !of_account.is_empty() {
                refunds.push(of_account);
            }
        }
        Some(Self {
            pool: Arc::clone(pool),
            key,
        })
    }
}

impl<S: Store> Drop for ResetGuard<S> {
    fn drop(&mut self) {
        self.pool.table.entry(self.key).end_reset();
    }
}
