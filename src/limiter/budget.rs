//! `Budget`: what a layer has charged for a request whose end settles the cost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::sync::{Mutex as AsyncMutex, oneshot};

use super::charge::Charge;
use super::quota::Quota;
use super::{Limiter, decisions};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Outcome, Verdict};
use crate::response::{Ending, KeptHead, Metered};
use crate::store::Store as _;
use crate::task::spawn_polled;

/// What a layer has charged for a request by the policies that settle at its end.
pub(super) struct Budget {
    limiter: Limiter,
    /// The quotas that were charged when the request arrived, and how much.
    each: Vec<(Quota, u64)>,
    /// Held while a step is asked for, so that nobody asks for what others are about to take.
    turn: AsyncMutex<()>,
    account: Mutex<Account>,
}

struct Account {
    /// In the order of the charges.
    taken: Vec<Charged>,
    /// Whether the end of the request has settled it.
    is_closed: bool,
}

/// What was taken of a quota.
pub(super) struct Charged {
    pub(super) permits: u64,
    /// The latest step, which most of what was charged ahead belongs to.
    pub(super) step: Option<Charge>,
}

/// A policy has nothing left.
pub(super) struct UsedUp {
    pub(super) verdict: Verdict,
    /// The position of the decision that explains it.
    pub(super) worst: usize,
}

/// One number for each quota.
type Permits = SmallVec<[u64; 2]>;

impl Budget {
    /// Of what was charged of each quota when the request arrived.
    pub(super) fn new(limiter: Limiter, charged: impl Iterator<Item = (Quota, u64)>) -> Self {
        let each: Vec<_> = charged.collect();
        let taken = each.iter().map(|(_, estimate)| Charged {
            permits: *estimate,
            step: None,
        });
        Self {
            limiter,
            account: Mutex::new(Account {
                taken: taken.collect(),
                is_closed: false,
            }),
            each,
            turn: AsyncMutex::default(),
        }
    }

    /// What was taken of each, in the order of the charges. From now on nothing more is: a step that
    /// is still asked for is given back.
    pub(super) fn close(&self) -> Vec<Charged> {
        let mut account = self.account();
        account.is_closed = true;
        std::mem::take(&mut account.taken)
    }

    /// Takes what the request has used and was not charged for yet: a whole step or, where that is
    /// too much, no more than was used. Goes on if the caller leaves, as the store may have counted
    /// a step by then.
    pub(super) async fn cover(self: &Arc<Self>, meter: &dyn Metered) -> Result<(), UsedUp> {
        // The kill switch takes nothing.
        if !self.limiter.is_on() {
            return Ok(());
        }
        let used = self.used(meter);
        if self.missing(&used).is_none() {
            return Ok(());
        }
        let covering = Arc::clone(self).cover_in_turn(used);
        let Some(runtime) = self.limiter.runtime_to_go_on(None) else {
            return covering.await;
        };
        let (answer, answered) = oneshot::channel();
        spawn_polled(&runtime, async move {
            let _ = answer.send(covering.await);
        });
        // If the runtime ends before, the end of the request charges for it.
        answered.await.unwrap_or(Ok(()))
    }

    async fn cover_in_turn(self: Arc<Self>, used: Permits) -> Result<(), UsedUp> {
        let _turn = self.turn.lock().await;
        // Whoever had the turn before may have taken it.
        let Some(missing) = self.missing(&used) else {
            return Ok(());
        };
        let mut in_flight = self.limiter.in_flight_guard();
        let steps = self
            .each
            .iter()
            .zip(&missing)
            .map(|((_, estimate), missing)| {
                let step = missing.checked_next_multiple_of((*estimate).max(1));
                step.unwrap_or(*missing)
            });
        let steps: Permits = steps.collect();
        let mut covered = self.take(&steps).await;
        if covered.is_err() && steps != missing {
            covered = self.take(&missing).await;
        }
        in_flight.arrived();
        covered
    }

    /// What was used of each and not taken; `None` if there is nothing, or nothing is to be charged
    /// any more.
    fn missing(&self, used: &[u64]) -> Option<Permits> {
        let account = self.account();
        let missing = used.iter().zip(&account.taken);
        let missing: Permits = missing
            .map(|(used, taken)| used.saturating_sub(taken.permits))
            .collect();
        missing
            .iter()
            .any(|missing| *missing > 0)
            .then_some(missing)
    }

    /// What each has cost so far.
    fn used(&self, meter: &dyn Metered) -> Permits {
        let head = KeptHead::default();
        let mut used = Permits::new();
        for (quota, estimate) in &self.each {
            used.push(match quota.rate {
                0 => {
                    let end = head.end(Ending::Dropped, None, meter, *estimate);
                    quota.policy.cost_at_end(&end).unwrap_or_default()
                }
                // The cost is read once for all rates of a policy.
                _ => used.last().copied().unwrap_or_default(),
            });
        }
        used
    }

    async fn take(&self, permits: &[u64]) -> Result<(), UsedUp> {
        // The position of each, its quota under the rules in force, and the permits to take.
        let asked: SmallVec<[(usize, Quota, u64); 2]> = {
            let rules = self.limiter.0.rules.load();
            let each = self.each.iter().zip(permits).enumerate();
            each.filter(|(_, (_, permits))| **permits > 0)
                .filter_map(|(nth, ((quota, _), permits))| {
                    Some((nth, quota.in_mode_in_force(&rules)?, *permits))
                })
                .collect()
        };
        if asked.is_empty() {
            return Ok(());
        }
        let checks = asked
            .iter()
            .map(|(_, quota, permits)| quota.check(Action::acquire(*permits)));
        let answer = self
            .limiter
            .0
            .store
            .ask(&checks.collect::<SmallVec<[_; 2]>>());
        let decided: Decisions = decisions(answer)
            .await
            .iter()
            .zip(&asked)
            .map(|(answer, (_, quota, _))| match quota.is_shadow {
                true => answer.in_shadow(),
                false => *answer,
            })
            .collect();
        if !decided.all_allow() {
            let quotas = asked.iter().map(|(_, quota, _)| quota);
            return Err(UsedUp::by(quotas, &decided));
        }
        let taken = asked.into_iter().zip(decided.iter());
        self.note(taken.filter_map(|((nth, quota, permits), decision)| {
            // What passed in shadow or for lack of an answer was not taken.
            let is_taken = decision.outcome() == Outcome::Allowed;
            is_taken.then(|| (nth, Charge::of_step(quota, permits, decision.receipt)))
        }));
        Ok(())
    }

    /// Notes what was taken, or gives it back if it came too late.
    fn note(&self, taken: impl Iterator<Item = (usize, Charge)>) {
        let mut late: SmallVec<[Charge; 2]> = SmallVec::new();
        {
            let mut account = self.account();
            for (nth, step) in taken {
                if account.is_closed {
                    late.push(step);
                } else {
                    let taken = &mut account.taken[nth];
                    taken.permits = taken.permits.saturating_add(step.cost);
                    taken.step = Some(step);
                }
            }
        }
        let late = late.iter().filter_map(|step| step.give_back(step.cost));
        self.limiter.carry_out_later(late.collect(), false, None);
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsedUp {
    /// Each policy's decision is that of all its rates.
    fn by<'a>(asked: impl Iterator<Item = &'a Quota>, decided: &Decisions) -> Self {
        let mut each: Vec<(Arc<str>, Decision)> = Vec::new();
        for (quota, decision) in asked.zip(decided.iter()) {
            match each.last_mut() {
                Some((_, first)) if quota.rate > 0 => *first = first.and_under(decision),
                _ => each.push((quota.policy.id.shared_name(), *decision)),
            }
        }
        let all: Decisions = each.iter().map(|(_, decision)| *decision).collect();
        Self {
            worst: all.denied_by().unwrap_or_default(),
            verdict: Verdict::new(None, each.into_iter()),
        }
    }
}
