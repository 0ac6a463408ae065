//! `Account`: the permits of one subject that this process holds. It never hands out a permit twice, or
//! after it has come back in the store, whatever the planner does.

use smallvec::SmallVec;

use super::planner::{Arrival, Refill, RefillPlanner};
use crate::algorithm::{Action, Algorithm};
use crate::decision::{Decision, Receipt};
use crate::store::check::OwnedCheck;
use crate::store::{Check, Prefetch};
use crate::time::Micros;

pub(super) struct Account {
    pub(super) key: u128,
    /// The check by which permits are taken and given back.
    check: OwnedCheck,
    planner: RefillPlanner,
    /// The older ones are handed out first.
    batches: SmallVec<[PrefetchedPermits; 2]>,
    last_asked: Micros,
}

/// What happens to the permits that an account still holds.
#[derive(Clone, Copy)]
pub(super) enum Leftover {
    /// The store forgets the state that they were acquired from, so nothing is given back.
    Forget,
    GiveBack,
}

/// The outcome of a question.
pub(super) struct Acquired {
    /// The decision, if enough permits were held.
    pub(super) decision: Option<Decision>,
    /// The permits still held.
    pub(super) held: u64,
    pub(super) refill: Option<Refill>,
    pub(super) refunds: Refunds,
}

/// What an account gives back, in this order.
pub(super) type Refunds = SmallVec<[OwnedCheck; 2]>;

impl Account {
    pub(super) fn open(key: u128, check: &Check<'_>, prefetch: Prefetch) -> Self {
        Self {
            key,
            check: OwnedCheck::of(check),
            planner: RefillPlanner::new(prefetch),
            batches: SmallVec::new(),
            last_asked: Micros::ZERO,
        }
    }

    pub(super) fn last_asked(&self) -> Micros {
        self.last_asked
    }

    /// Whether permits are held or in flight.
    pub(super) fn is_in_use(&self) -> bool {
        !self.batches.is_empty() || self.planner.has_in_flight()
    }

    /// Whether the permits held are of this check's limit, prefetch and group.
    fn is_of(&self, check: &Check<'_>) -> bool {
        let own = self.check.check();
        own.algorithm == check.algorithm
            && own.policy.prefetch() == check.policy.prefetch()
            && own.policy.group() == check.policy.group()
    }

    /// Hands out permits if there are enough. A batch may be asked for and is then awaited until
    /// `refill_until`, if that is given.
    pub(super) fn acquire(
        &mut self,
        check: &Check<'_>,
        prefetch: Prefetch,
        now: Micros,
        refill_until: Option<Micros>,
    ) -> Acquired {
        let cost = check.action.acquires();
        let mut refunds = self.expire_old(now);
        if !self.is_of(check) {
            // A subject can have several limits at a time. If every switch between them closed the
            // account, permits would be lost whenever others have acquired some since.
            if self.is_in_use() && !self.is_idle(now) {
                return Acquired {
                    decision: None,
                    held: 0,
                    refill: None,
                    refunds,
                };
            }
            refunds.extend(self.give_back_batches());
            *self = Self {
                planner: self.planner.restarted(prefetch),
                ..Self::open(self.key, check, prefetch)
            };
        }
        self.last_asked = now;
        let is_enough = self.held() >= cost;
        if is_enough {
            self.hand_out(cost);
        }
        let held = self.held();
        let algorithm = &self.check.algorithm;
        self.planner.record_demand(algorithm, cost, now);
        let newest = self.batches.last().filter(|_| is_enough);
        let decision = newest.map(|batch| batch.decision(algorithm, held, now));
        let has_room = self.batches.len() < self.batches.inline_size();
        let refill = refill_until
            .filter(|_| has_room)
            .and_then(|until| self.planner.plan(algorithm, held, cost, now, until));
        Acquired {
            decision,
            held,
            refill,
            refunds,
        }
    }

    /// The permits that can be handed out now for this check.
    pub(super) fn look(&mut self, check: &Check<'_>, now: Micros) -> u64 {
        if !self.is_of(check) {
            return 0;
        }
        for batch in &mut self.batches {
            batch.lapse(&self.check.algorithm, now);
        }
        let good = self.batches.iter().filter(|batch| !batch.has_ended(now));
        good.map(|batch| batch.left).sum()
    }

    /// Empties the account of all permits, held or in flight. Returns what is to be given back.
    pub(super) fn clear(&mut self, leftover: Leftover) -> Refunds {
        match leftover {
            Leftover::Forget => {
                self.planner.forget();
                self.batches.clear();
                Refunds::new()
            }
            Leftover::GiveBack => {
                self.planner.want_none();
                self.give_back_batches()
            }
        }
    }

    fn is_idle(&self, now: Micros) -> bool {
        let idle = self.planner.prefetch().horizon().get() * 2;
        now.saturating_sub(self.last_asked).get() >= idle
    }

    /// Gives back permits that are too old, or all of them if the subject is idle.
    pub(super) fn tidy(&mut self, now: Micros) -> Refunds {
        self.planner.tidy(now);
        let mut refunds = self.expire_old(now);
        if self.is_idle(now) {
            refunds.extend(self.give_back_batches());
        }
        refunds
    }

    /// Gives back everything that is left.
    fn give_back_batches(&mut self) -> Refunds {
        // The newest first: only other processes may have acquired permits after it.
        let batches = std::mem::take(&mut self.batches).into_iter().rev();
        batches
            .filter_map(|batch| self.given_back(&batch))
            .collect()
    }

    pub(super) fn wants(&self, refill: &Refill) -> bool {
        self.planner.wants(refill)
    }

    /// A batch has arrived. Returns what to do with it.
    pub(super) fn deposit(
        &mut self,
        refill: &Refill,
        decision: &Decision,
        sent: Micros,
        now: Micros,
    ) -> Arrival {
        let algorithm = &self.check.algorithm;
        let arrival = self.planner.arrived(refill, algorithm, decision, sent, now);
        if matches!(arrival, Arrival::Wanted) && decision.is_allowed() {
            let age = self.planner.prefetch().most_age();
            let batch = PrefetchedPermits::new(refill.permits, *decision, sent, age);
            self.batches.push(batch);
        }
        arrival
    }

    /// The batch did not arrive, for an unknown reason.
    pub(super) fn missed(&mut self, refill: &Refill, now: Micros) {
        self.planner.missed(refill, now);
    }

    /// Brings the batches up to date. Returns what is to be given back because its age is reached.
    fn expire_old(&mut self, now: Micros) -> Refunds {
        for batch in &mut self.batches {
            batch.lapse(&self.check.algorithm, now);
        }
        let mut refunds = Refunds::new();
        while let Some(oldest) = self.batches.first()
            && (oldest.has_ended(now) || oldest.left == 0)
        {
            let oldest = self.batches.remove(0);
            refunds.extend(self.given_back(&oldest));
        }
        refunds
    }

    fn given_back(&self, batch: &PrefetchedPermits) -> Option<OwnedCheck> {
        Some(self.check.with_action(batch.give_back()?))
    }

    fn held(&self) -> u64 {
        self.batches.iter().map(|batch| batch.left).sum()
    }

    fn hand_out(&mut self, permits: u64) {
        let mut missing = permits;
        for batch in &mut self.batches {
            missing = batch.hand_out(missing);
        }
    }
}

/// Permits that were taken in one round trip and are handed out one by one.
struct PrefetchedPermits {
    left: u64,
    /// The store's decision that took them.
    decision: Decision,
    /// When it was sent, on this process's clock. The store decided no earlier.
    sent: Micros,
    /// From then on no permits are handed out.
    ends: Micros,
}

impl PrefetchedPermits {
    fn new(permits: u64, decision: Decision, sent: Micros, age: Micros) -> Self {
        Self {
            left: permits,
            decision,
            sent,
            ends: sent.saturating_add(age),
        }
    }

    fn has_ended(&self, now: Micros) -> bool {
        now >= self.ends
    }

    /// Drops the permits that have come back in the store, assuming the earliest case: that the store
    /// decided the moment it was asked.
    ///
    /// Call this before handing out permits, so that none of them has come back.
    fn lapse(&mut self, algorithm: &Algorithm, now: Micros) {
        let elapsed = now.saturating_sub(self.sent);
        let not_back = algorithm.permits_left_after(&self.decision, elapsed);
        self.left = self.left.min(not_back);
    }

    /// Hands out as many of these permits as there are. Returns how many are missing.
    fn hand_out(&mut self, permits: u64) -> u64 {
        let handed_out = permits.min(self.left);
        self.left -= handed_out;
        permits - handed_out
    }

    /// The decision on a request served from the batch, with this many permits still held.
    fn decision(&self, algorithm: &Algorithm, held: u64, now: Micros) -> Decision {
        let elapsed = now.saturating_sub(self.sent);
        Decision {
            reset_after: self.decision.reset_after.saturating_sub(elapsed),
            renews_after: self.decision.renews_after.saturating_sub(elapsed),
            // One receipt stands for the whole batch.
            receipt: Receipt::default(),
            is_prefetched: true,
            ..self.decision.with_held(held, algorithm.capacity())
        }
    }

    /// The action that gives back what is left.
    fn give_back(&self) -> Option<Action> {
        // Not a refund, which gives permits back even if others have acquired some since. Those
        // others would then hold permits that seem to come back later than they do, and hand them
        // out together with those of the next acquire.
        (self.left > 0).then_some(Action::Cancel {
            permits: self.left,
            receipt: self.decision.receipt,
        })
    }
}
