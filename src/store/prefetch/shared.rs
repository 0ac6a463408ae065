//! `Shared`: the batches of a process, and the tasks that maintain them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use super::account::Unspent;
use super::giving_back::if_any;
use super::table::Table;
use crate::store::{Store, UnderWay};
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
