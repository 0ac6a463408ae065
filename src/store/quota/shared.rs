//! `Shared`: the batches of a process, and who looks after them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::giving_back::if_any;
use super::table::Table;
use crate::store::Store;
use crate::time::Clock;

/// How often it is looked after batches while there are any.
const ROUND: Duration = Duration::from_millis(100);

// With a bound, because dropping it asks the store.
pub(super) struct Shared<S: Store> {
    pub(super) inner: S,
    pub(super) table: Table,
    pub(super) clock: Box<dyn Clock>,
    /// The time that a trip for a batch may take.
    pub(super) deadline: Duration,
    is_looked_after: AtomicBool,
}

impl<S: Store> Shared<S> {
    pub(super) fn new(inner: S, deadline: Duration, clock: impl Clock) -> Self {
        Self {
            inner,
            table: Table::new(),
            clock: Box::new(clock),
            deadline,
            is_looked_after: AtomicBool::new(false),
        }
    }

    /// Sees to it that somebody looks after the batches, for as long as there are any. Called on a
    /// runtime with time.
    pub(super) fn look_after(this: &Arc<Self>) {
        if !this.is_looked_after.swap(true, Ordering::AcqRel) {
            let upkeep = Upkeep {
                shared: Arc::downgrade(this),
                is_over: false,
            };
            tokio::spawn(upkeep.run());
        }
    }

    /// Gives back what is too old or not asked for any more; whether anything is left.
    pub(super) fn tidy(&self) -> bool {
        let now = self.clock.now();
        let (mut returned, mut is_in_use) = (Vec::new(), false);
        self.table.each(|account| {
            returned.extend(if_any(account.tidy(now)));
            is_in_use |= account.is_in_use();
        });
        self.give_back_all(returned);
        is_in_use
    }
}

/// Asks the store for nothing but what is left, so that it can be had at once by who is left.
impl<S: Store> Drop for Shared<S> {
    fn drop(&mut self) {
        let mut returned = Vec::new();
        self.table
            .each(|account| returned.extend(if_any(account.close())));
        self.give_back_all(returned);
    }
}

/// The task that looks after the batches.
struct Upkeep<S: Store> {
    shared: Weak<Shared<S>>,
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
            shared.is_looked_after.store(false, Ordering::Release);
            // Whoever has got a batch in between may have found that it is looked after.
            self.is_over = !shared.tidy() || shared.is_looked_after.swap(true, Ordering::AcqRel);
            if self.is_over {
                return;
            }
        }
    }
}

impl<S: Store> Drop for Upkeep<S> {
    fn drop(&mut self) {
        // Its runtime was shut down: the next batch starts another one.
        if !self.is_over
            && let Some(shared) = self.shared.upgrade()
        {
            shared.is_looked_after.store(false, Ordering::Release);
        }
    }
}
