//! `Budget`: what a layer has charged for a request whose end settles the cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::quota::Quota;
use super::{Limiter, decisions};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Outcome, Verdict};
use crate::response::{Ending, KeptHead, Metered};
use crate::store::Store as _;

/// What a layer has charged for a request by the policies that settle at its end.
pub(super) struct Budget {
    limiter: Limiter,
    each: Vec<Charged>,
}

/// A policy has nothing left.
pub(super) struct UsedUp {
    pub(super) verdict: Verdict,
    /// The position of the decision that explains it.
    pub(super) worst: usize,
}

struct Charged {
    quota: Quota,
    estimate: u64,
    taken: AtomicU64,
}

impl Budget {
    /// Of what was charged of each quota when the request arrived.
    pub(super) fn new(limiter: Limiter, charged: impl Iterator<Item = (Quota, u64)>) -> Self {
        let each = charged.map(|(quota, estimate)| Charged {
            quota,
            estimate,
            taken: AtomicU64::new(estimate),
        });
        Self {
            limiter,
            each: each.collect(),
        }
    }

    /// What was taken of each, in the order of the charges.
    pub(super) fn taken(&self) -> impl Iterator<Item = u64> {
        self.each
            .iter()
            .map(|each| each.taken.load(Ordering::Acquire))
    }

    /// Takes what the request has used and was not charged for yet: a whole step or, where that is
    /// too much, no more than was used.
    pub(super) async fn cover(&self, meter: &dyn Metered) -> Result<(), UsedUp> {
        // The kill switch takes nothing.
        if !self.limiter.is_on() {
            return Ok(());
        }
        let used = self.used(meter);
        let missing =
            |each: &Charged, used: u64| used.saturating_sub(each.taken.load(Ordering::Acquire));
        let steps: SmallVec<[u64; 2]> = self
            .each
            .iter()
            .zip(&used)
            .map(|(each, used)| {
                let missing = missing(each, *used);
                let step = missing.checked_next_multiple_of(each.estimate.max(1));
                step.unwrap_or(missing)
            })
            .collect();
        if steps.iter().all(|step| *step == 0) {
            return Ok(());
        }
        if self.take(&steps).await.is_ok() {
            return Ok(());
        }
        let rest: SmallVec<[u64; 2]> = self
            .each
            .iter()
            .zip(&used)
            .map(|(each, used)| missing(each, *used))
            .collect();
        self.take(&rest).await
    }

    /// What each has cost so far.
    fn used(&self, meter: &dyn Metered) -> SmallVec<[u64; 2]> {
        let head = KeptHead::default();
        let mut used = SmallVec::new();
        for each in &self.each {
            used.push(match each.quota.rate {
                0 => {
                    let end = head.end(Ending::Dropped, None, meter, each.estimate);
                    each.quota.policy.cost_at_end(&end).unwrap_or_default()
                }
                // The cost is read once for all rates of a policy.
                _ => used.last().copied().unwrap_or_default(),
            });
        }
        used
    }

    async fn take(&self, permits: &[u64]) -> Result<(), UsedUp> {
        let asked = self
            .each
            .iter()
            .zip(permits)
            .filter(|(_, permits)| **permits > 0);
        let asked: SmallVec<[(&Charged, u64); 2]> =
            asked.map(|(each, permits)| (each, *permits)).collect();
        let checks = asked
            .iter()
            .map(|(each, permits)| each.quota.check(Action::acquire(*permits)));
        let checks: SmallVec<[_; 2]> = checks.collect();
        let answer = self.limiter.0.store.ask(&checks);
        drop(checks);
        let answers = decisions(answer).await;
        let decided = asked.iter().zip(answers.iter());
        let decided = decided.map(|((each, _), answer)| match each.quota.is_shadow {
            true => answer.in_shadow(),
            false => *answer,
        });
        let decided: Decisions = decided.collect();
        if !decided.all_allow() {
            return Err(UsedUp::by(&asked, &decided));
        }
        for ((each, permits), decision) in asked.iter().zip(decided.iter()) {
            // What passed in shadow or for lack of an answer was not taken.
            if decision.outcome() == Outcome::Allowed {
                each.taken.fetch_add(*permits, Ordering::AcqRel);
            }
        }
        Ok(())
    }
}

impl UsedUp {
    /// Each policy's decision is that of all its rates.
    fn by(asked: &[(&Charged, u64)], decided: &Decisions) -> Self {
        let mut each: Vec<(Arc<str>, Decision)> = Vec::new();
        for ((charged, _), decision) in asked.iter().zip(decided.iter()) {
            match each.last_mut() {
                Some((_, first)) if charged.quota.rate > 0 => *first = first.and_under(decision),
                _ => each.push((charged.quota.policy.id.shared_name(), *decision)),
            }
        }
        let all: Decisions = each.iter().map(|(_, decision)| *decision).collect();
        Self {
            worst: all.denied_by().unwrap_or_default(),
            verdict: Verdict::new(None, each.into_iter()),
        }
    }
}
