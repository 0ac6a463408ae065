//! `Taken`: what a request has taken and may have to give back.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::giving_back::{Step, Steps};
use super::leases::Lease;
use super::quota::Quota;
use super::{Limiter, failure};
use crate::algorithm::{Action, LeaseId};
use crate::decision::{Decision, Outcome, Receipt};
use crate::policy::ReadyPolicy;
use crate::response::ResponseHead;
use crate::store::{Answer, Check, Store as _};

/// What a request has taken. Dropping it gives back what the request's stage says, without waiting
/// for the answer. What cannot be given back lapses.
pub(crate) struct Taken {
    limiter: Limiter,
    entries: SmallVec<[Entry; 1]>,
    stage: Stage,
    /// When the store was asked; nothing was taken before.
    asked: Instant,
    /// Where leases are renewed. Also where permits are given back if this is dropped outside any
    /// runtime.
    runtime: Option<Handle>,
}

/// What the layer keeps for a request. Most requests have nothing to give back.
pub(crate) type TakenByRequest = Option<Box<Taken>>;

/// What one check of a policy has taken.
struct Entry {
    quota: Quota,
    cost: u32,
    /// The receipt, once permits are known to be taken.
    receipt: Option<Receipt>,
    /// Whether others may wait behind it.
    is_queued: bool,
    lease: Option<LeaseId>,
    in_store: InStore,
}

/// Whether the store holds what was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InStore {
    No,
    /// The question may still reach it: there is no answer, or none was waited for.
    Perhaps,
    Yes,
}

#[derive(Clone, Copy)]
enum Stage {
    /// The answer is in flight. A lease may have been taken, so it is released.
    Asking,
    /// The answer is there, but nobody waited for it. Permits that others would wait behind are given
    /// back. All others are used: a client that leaves before each answer has to be denied, too.
    Left,
    /// The request is held up. Nothing was used yet, so everything is given back.
    Waiting,
    /// The request runs. Leases are released, everything else is used.
    Running,
}

impl Taken {
    pub(super) fn asking(limiter: Limiter) -> Self {
        Self {
            limiter,
            entries: SmallVec::new(),
            stage: Stage::Asking,
            asked: Instant::now(),
            runtime: Handle::try_current().ok(),
        }
    }

    pub(super) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Adds the checks of a policy's rates, which are about to be asked.
    pub(super) fn add<'a>(
        &mut self,
        policy: &Arc<ReadyPolicy>,
        rates: impl Iterator<Item = &'a Check<'a>>,
    ) {
        let entries = rates.enumerate().map(|(rate, check)| Entry {
            quota: Quota::of(policy, rate, check),
            cost: check.action.takes(),
            receipt: None,
            is_queued: check.algorithm.may_hold_up(&check.action),
            lease: check.action.lease(),
            in_store: InStore::Perhaps,
        });
        self.entries.extend(entries);
    }

    /// Takes the answers: for each check that was added, the decision of its policy and its own.
    pub(super) fn answered<'a>(
        &mut self,
        answers: impl Iterator<Item = (&'a Decision, &'a Decision)> + Clone,
    ) {
        let all_allow = answers.clone().all(|(decision, _)| decision.is_allowed());
        let mut doubtful: SmallVec<[Entry; 1]> = SmallVec::new();
        let entries = std::mem::take(&mut self.entries);
        for (mut entry, (decision, own)) in entries.into_iter().zip(answers) {
            // Its own: the policy's does not tell if its penalty is known to ban.
            entry.in_store = match own.store_failure() {
                None => InStore::Yes,
                Some(failure) if failure.may_have_counted() => InStore::Perhaps,
                Some(_) => InStore::No,
            };
            if all_allow && decision.outcome == Outcome::Allowed {
                entry.receipt = Some(own.receipt);
                self.entries.push(entry);
            } else if entry.in_store == InStore::Perhaps {
                doubtful.push(entry);
            }
        }
        self.give_back(&doubtful, Entry::release);
        self.stage = Stage::Waiting;
        // Without a runtime nothing is renewed, and the lease lapses.
        let home = self.limiter.0.store.home();
        if let Some(runtime) = home.as_ref().or(self.runtime.as_ref()) {
            for lease in self.entries.iter().filter_map(Entry::lease) {
                self.limiter.keep_alive(lease, self.asked, runtime);
            }
        }
    }

    /// The store was never asked, so there is nothing to give back.
    pub(super) fn was_not_asked(mut self) {
        self.entries.clear();
    }

    /// Nobody waited for the answer.
    pub(super) fn leave(mut self) {
        self.stage = Stage::Left;
    }

    /// Whether the store answers about these permits' subject.
    pub(super) async fn does_store_answer(&self) -> bool {
        let entries = self.entries.iter();
        match self.ask(entries.map(|entry| entry.quota.check(Action::look()))) {
            Some(answer) => failure(answer).await.is_none(),
            None => false,
        }
    }

    /// The request is let through: from now on what it has taken is used.
    pub(crate) fn go_on(&mut self) {
        self.stage = Stage::Running;
    }

    /// Whether something is held for as long as the request runs.
    pub(crate) fn has_leases(&self) -> bool {
        self.entries.iter().any(|entry| entry.lease.is_some())
    }

    /// Whether a lease is not known to live any more.
    pub(super) fn has_lapsed(&self) -> bool {
        let now = Instant::now();
        let mut leases = self.entries.iter().filter_map(Entry::lease);
        leases.any(|lease| {
            let until = self.limiter.0.leases.lives_until(lease.id);
            until.unwrap_or(self.asked + lease.life()) <= now
        })
    }

    /// Charges or gives back the difference between the actual cost and the estimate.
    pub(crate) fn settle(&self, response: &ResponseHead<'_>) {
        let rules = self.limiter.0.rules.load();
        let mut actual = 0;
        let steps = self.entries.iter().filter_map(|entry| {
            let quota = &entry.quota;
            // The cost is read once for all rates.
            if quota.rate == 0 {
                actual = quota.policy.settled_cost(response, entry.cost);
            }
            let receipt = entry.receipt?;
            let (quota, action) = match actual.cmp(&entry.cost) {
                Ordering::Greater => {
                    let action = Action::Charge(actual - entry.cost);
                    (quota.in_force(&rules), action)
                }
                Ordering::Less => {
                    let action = entry.unused(entry.cost - actual, receipt);
                    (Cow::Borrowed(quota), action)
                }
                Ordering::Equal => return None,
            };
            Some(Step {
                quota,
                action,
                is_in_store: true,
            })
        });
        self.carry_out_later(steps.collect(), false);
    }

    /// Gives back what `action` says for each entry.
    fn give_back(&self, entries: &[Entry], action: impl Fn(&Entry) -> Option<Action>) {
        let steps = entries.iter().filter_map(|entry| {
            Some(Step {
                quota: Cow::Borrowed(&entry.quota),
                action: action(entry)?,
                is_in_store: entry.in_store != InStore::No,
            })
        });
        let is_in_doubt = |entry: &Entry| entry.in_store == InStore::Perhaps;
        self.carry_out_later(steps.collect(), entries.iter().any(is_in_doubt));
    }

    fn carry_out_later(&self, steps: Steps<'_>, is_in_doubt: bool) {
        let began = self.runtime.as_ref();
        self.limiter.carry_out_later(steps, is_in_doubt, began);
    }

    pub(super) fn runtime_to_go_on(&self) -> Option<Handle> {
        self.limiter.runtime_to_go_on(self.runtime.as_ref())
    }

    /// Asks, if there is anything to ask.
    fn ask<'a>(&self, checks: impl Iterator<Item = Check<'a>>) -> Option<Answer> {
        let checks: SmallVec<[Check<'_>; 4]> = checks.collect();
        let is_to_ask = !checks.is_empty();
        is_to_ask.then(|| self.limiter.0.store.ask(&checks))
    }
}

impl Entry {
    /// The lease that it may have taken.
    fn lease(&self) -> Option<Lease> {
        Some(Lease {
            id: self.lease?,
            quota: self.quota.clone(),
        })
    }

    fn release(&self) -> Option<Action> {
        self.lease.map(Action::Release)
    }

    /// Gives back everything, as nothing of it was used.
    fn cancel(&self) -> Option<Action> {
        if let Some(lease) = self.lease {
            return Some(Action::Release(lease));
        }
        Some(self.unused(self.cost, self.receipt?))
    }

    fn leave(&self) -> Option<Action> {
        match self.is_queued {
            true => self.cancel(),
            false => self.release(),
        }
    }

    /// The action that gives back this many of the permits taken under this receipt.
    fn unused(&self, permits: u32, receipt: Receipt) -> Action {
        // Those who wait behind it have been told when to go on. After a refund, a newcomer would
        // go on together with one of them.
        if self.is_queued {
            Action::Withdraw { permits, receipt }
        } else {
            Action::Refund { permits, receipt }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for lease in self.entries.iter().filter_map(|entry| entry.lease) {
            self.limiter.stop_renewing(lease);
        }
        match self.stage {
            Stage::Asking | Stage::Running => self.give_back(&self.entries, Entry::release),
            Stage::Left => self.give_back(&self.entries, Entry::leave),
            Stage::Waiting => self.give_back(&self.entries, Entry::cancel),
        }
    }
}
