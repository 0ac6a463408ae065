//! A batch that is asked for in the background, while requests are answered from the previous one.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::account::Refunds;
use super::planner::{Arrival, Refill};
use super::pool::Pool;
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::error::StoreError;
use crate::store::check::OwnedCheck;
use crate::store::{Answer, Check, Store};
use crate::task::{InFlightGuard, within};
use crate::time::Micros;

impl<S: Store> Pool<S> {
    /// Asks for a batch.
    pub(super) fn refill(this: &Arc<Self>, check: &Check<'_>, refill: Refill) {
        let check = Check {
            action: Action::acquire(refill.permits),
            ..*check
        };
        let mut batch = RefillInFlight {
            key: check.policy_fingerprint(),
            check: OwnedCheck::of(&check),
            refill,
            sent: this.clock.now(),
            pool: Arc::clone(this),
            in_flight: this.in_flight.begin(),
        };
        match this.inner.ask(&[check]) {
            Answer::Ready(answer) => {
                batch.in_flight.arrived();
                batch.unneeded(&answer);
            }
            Answer::Pending(answer) => {
                // Without a runtime there are no batches.
                let Ok(runtime) = Handle::try_current() else {
                    return batch.in_flight.arrived();
                };
                runtime.spawn(async move {
                    // A reset that has begun since would reach the store first.
                    if !batch.is_wanted() {
                        return batch.in_flight.arrived();
                    }
                    let answer = within(batch.pool.deadline, answer).await;
                    if let Some(answer) = answer {
                        batch.arrived(&answer);
                    }
                });
            }
        }
    }

    /// Stops waiting for this batch.
    pub(super) fn missed(&self, key: u128, refill: &Refill) {
        let now = self.clock.now();
        if let Some(account) = self.table.entry(key).account() {
            account.missed(refill, now);
        }
    }
}

/// A batch in flight. Dropping it stops waiting for the batch.
struct RefillInFlight<S: Store> {
    key: u128,
    check: OwnedCheck,
    refill: Refill,
    sent: Micros,
    pool: Arc<Pool<S>>,
    /// Held until giving back this batch has begun, where it is given back.
    in_flight: InFlightGuard,
}

impl<S: Store> RefillInFlight<S> {
    fn is_wanted(&self) -> bool {
        let mut entry = self.pool.table.entry(self.key);
        entry
            .account()
            .is_some_and(|account| account.wants(&self.refill))
    }

    fn arrived(&mut self, answer: &Result<Decisions, StoreError>) {
        if !matches!(answer, Err(error) if error.kind().may_have_counted()) {
            self.in_flight.arrived();
        }
        if let Ok(decisions) = answer
            && let [decision] = **decisions
        {
            self.deposit(&decision);
            Pool::maintain(&self.pool);
        }
    }

    /// The store answered at once and so needs no batches, or the answer was a remembered denial.
    fn unneeded(&self, answer: &Result<Decisions, StoreError>) {
        let Ok(decisions) = answer else { return };
        let [decision] = **decisions else { return };
        if decision.is_allowed() {
            self.give_back(&decision);
        } else {
            self.deposit(&decision);
        }
    }

    fn deposit(&self, decision: &Decision) {
        let now = self.pool.clock.now();
        let mut entry = self.pool.table.entry(self.key);
        // If the table has dropped the account, the batch counts as forgotten, too.
        let arrival = entry.account().map_or(Arrival::Forgotten, |account| {
            account.deposit(&self.refill, decision, self.sent, now)
        });
        drop(entry);
        let is_to_go_back = match arrival {
            Arrival::Wanted => false,
            Arrival::Unwanted => true,
            // The store may have taken the batch before a reset, or after a reset that overtook it.
            Arrival::Forgotten => self.check.algorithm.tells_what_was_forgotten(),
        };
        if is_to_go_back && decision.is_allowed() {
            self.give_back(decision);
        }
    }

    /// By the check that took it: the subject's account may use another one by now.
    fn give_back(&self, decision: &Decision) {
        let refund = self.check.with_action(Action::Cancel {
            permits: self.refill.permits,
            receipt: decision.receipt,
        });
        self.pool.give_back(Refunds::from_iter([refund]));
    }
}

impl<S: Store> Drop for RefillInFlight<S> {
    /// Does nothing if the batch has arrived.
    fn drop(&mut self) {
        self.pool.missed(self.key, &self.refill);
    }
}
