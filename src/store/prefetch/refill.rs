//! A batch that is asked for in the background, while requests are answered from the previous one.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::account::{Account, Returned};
use super::planner::{Arrival, Refill};
use super::pool::Shared;
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::error::StoreError;
use crate::store::deadline::within;
use crate::store::owned::OwnedCheck;
use crate::store::{Answer, Check, OnItsWay, Store};
use crate::time::Micros;

impl<S: Store> Shared<S> {
    /// Asks for a batch.
    pub(super) fn refill(this: &Arc<Self>, check: &Check<'_>, refill: Refill) {
        let check = Check {
            action: Action::take(refill.permits),
            ..*check
        };
        let mut batch = BatchInFlight {
            key: check.policy_fingerprint(),
            check: OwnedCheck::of(&check),
            refill,
            sent: this.clock.now(),
            shared: Arc::clone(this),
            on_its_way: this.under_way.begin(),
        };
        match this.inner.ask(&[check]) {
            Answer::Ready(answer) => {
                batch.on_its_way.arrived();
                batch.unneeded(&answer);
            }
            Answer::Pending(answer) => {
                // Without a runtime there are no batches.
                let Ok(runtime) = Handle::try_current() else {
                    return batch.on_its_way.arrived();
                };
                runtime.spawn(async move {
                    // A change that has begun since would reach the store first.
                    if !batch.is_wanted() {
                        return batch.on_its_way.arrived();
                    }
                    let answer = within(batch.shared.deadline, answer).await;
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
        let missed = |account: &mut Account| account.missed(refill, now);
        self.table.find(key, missed);
    }
}

/// A batch in flight. Dropping it stops waiting for the batch.
struct BatchInFlight<S: Store> {
    key: u128,
    check: OwnedCheck,
    refill: Refill,
    sent: Micros,
    shared: Arc<Shared<S>>,
    /// Held until giving back this batch has begun, where it is given back.
    on_its_way: OnItsWay,
}

impl<S: Store> BatchInFlight<S> {
    fn is_wanted(&self) -> bool {
        let wants = |account: &mut Account| account.wants(&self.refill);
        self.shared.table.find(self.key, wants).unwrap_or(false)
    }

    fn arrived(&mut self, answer: &Result<Decisions, StoreError>) {
        if !matches!(answer, Err(error) if error.kind().may_have_counted()) {
            self.on_its_way.arrived();
        }
        if let Ok(decisions) = answer
            && let [decision] = **decisions
        {
            self.deposit(&decision);
            Shared::look_after(&self.shared);
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
        let now = self.shared.clock.now();
        let deposit =
            |account: &mut Account| account.deposit(&self.refill, decision, self.sent, now);
        // If the table has dropped the account, the batch counts as forgotten, too.
        let arrival = self.shared.table.find(self.key, deposit);
        let is_to_go_back = match arrival.unwrap_or(Arrival::Forgotten) {
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
        let back = Action::Cancel {
            permits: self.refill.permits,
            receipt: decision.receipt,
        };
        let back = self.check.with_action(back);
        self.shared.give_back(Returned::from_iter([back]));
    }
}

impl<S: Store> Drop for BatchInFlight<S> {
    /// Does nothing if the batch has arrived.
    fn drop(&mut self) {
        self.shared.missed(self.key, &self.refill);
    }
}
