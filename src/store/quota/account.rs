//! `Account`: the permits that this process holds of one subject, and when it takes more.

use smallvec::SmallVec;

use super::batch::Batch;
use super::demand::Demand;
use super::lease::QuotaLease;
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::store::Check;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

/// A batch is taken when it is expected to save so many trips at least.
const FEWEST_SAVED: u32 = 8;

/// Of permits that would come back before they are used, a batch takes so many times what is expected
/// to be used at most: the rest only keeps others from having them.
const MOST_SPARE: u32 = 8;

pub(super) struct Account {
    pub(super) key: u128,
    /// By which permits are taken and given back.
    check: OwnedCheck,
    lease: QuotaLease,
    demand: Demand,
    /// The older one is handed out first.
    batches: SmallVec<[Batch; 2]>,
    /// When no more than so many are left, more are taken.
    low: u32,
    refill: Option<Ticket>,
    tickets: u32,
    /// The most that is asked for, since more was denied.
    ceiling: u32,
    /// No batch is asked for before.
    not_before: Micros,
    /// What the store said was left there.
    remaining: u32,
    last_asked: Micros,
}

/// Tells a batch that is on its way from those that nobody waits for any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// A batch that is to be asked for.
pub(super) struct Refill {
    pub(super) ticket: Ticket,
    pub(super) permits: u32,
}

/// What becomes of a question.
pub(super) struct Spent {
    /// The decision, if there were enough.
    pub(super) decision: Option<Decision>,
    /// What is left in hand.
    pub(super) held: u32,
    pub(super) refill: Option<Refill>,
    pub(super) returned: Returned,
}

/// What is to be given back.
pub(super) type Returned = SmallVec<[OwnedCheck; 2]>;

impl Account {
    pub(super) fn open(key: u128, check: &Check<'_>, lease: QuotaLease) -> Self {
        Self {
            key,
            check: OwnedCheck::of(check),
            lease,
            demand: Demand::default(),
            batches: SmallVec::new(),
            low: 0,
            refill: None,
            tickets: 0,
            ceiling: u32::MAX,
            not_before: Micros::ZERO,
            remaining: check.algorithm.capacity(),
            last_asked: Micros::ZERO,
        }
    }

    pub(super) fn last_asked(&self) -> Micros {
        self.last_asked
    }

    /// Whether permits are held or on their way.
    pub(super) fn is_in_use(&self) -> bool {
        !self.batches.is_empty() || self.refill.is_some()
    }

    /// Hands out permits if there are enough.
    pub(super) fn spend(
        &mut self,
        check: &Check<'_>,
        lease: QuotaLease,
        cost: u32,
        now: Micros,
    ) -> Spent {
        let mut returned = self.settled(now);
        if self.check.algorithm != check.algorithm || self.lease != lease {
            returned.extend(self.close());
            *self = Self {
                tickets: self.tickets,
                ..Self::open(self.key, check, lease)
            };
        }
        self.last_asked = now;
        self.demand.note(cost, now, lease.horizon());
        let is_enough = self.held() >= cost;
        if is_enough {
            self.hand_out(cost);
        }
        let held = self.held();
        let newest = self.batches.last().filter(|_| is_enough);
        Spent {
            decision: newest.map(|batch| batch.decision(&self.check.algorithm, held, now)),
            held,
            refill: self.refill(cost, held, now),
            returned,
        }
    }

    /// The permits that can be handed out now.
    pub(super) fn look(&mut self, now: Micros) -> u32 {
        for batch in &mut self.batches {
            batch.lapse(&self.check.algorithm, now);
        }
        let good = self.batches.iter().filter(|batch| !batch.has_ended(now));
        good.map(Batch::left).sum()
    }

    /// Lets go of all permits, without giving them back: what they were taken of is forgotten.
    pub(super) fn forget(&mut self) {
        self.batches.clear();
        self.refill = None;
    }

    /// Gives back what is too old, or what nobody asks for any more.
    pub(super) fn tidy(&mut self, now: Micros) -> Returned {
        let idle = self.lease.horizon().get() * 2;
        if now.saturating_sub(self.last_asked).get() >= idle {
            self.settled(now).into_iter().chain(self.close()).collect()
        } else {
            self.settled(now)
        }
    }

    /// Gives back all that is left.
    pub(super) fn close(&mut self) -> Returned {
        // The newest first: nobody has taken anything after it if anybody has not.
        let batches = std::mem::take(&mut self.batches).into_iter().rev();
        batches
            .filter_map(|batch| self.given_back(&batch))
            .collect()
    }

    /// The batch has come. One that nobody waits for any more is none: what it was taken of was
    /// forgotten, or is counted otherwise since.
    pub(super) fn deposit(
        &mut self,
        refill: &Refill,
        decision: &Decision,
        sent: Micros,
        now: Micros,
    ) {
        if self.refill != Some(refill.ticket) {
            return;
        }
        self.refill = None;
        self.remaining = decision.remaining;
        if decision.is_allowed() {
            let batch = Batch::new(refill.permits, *decision, sent, self.lease.most_age());
            self.batches.push(batch);
            self.low = refill.permits / 2;
            self.ceiling = self.ceiling.saturating_mul(2);
        } else {
            let fits = decision.remaining.min(refill.permits / 2);
            self.ceiling = fits.max(FEWEST_SAVED);
            self.pause(now);
        }
    }

    /// No batch has come, and why is not known.
    pub(super) fn missed(&mut self, refill: &Refill, now: Micros) {
        if self.refill == Some(refill.ticket) {
            self.refill = None;
            self.pause(now);
        }
    }

    fn pause(&mut self, now: Micros) {
        let pause = Micros::new(self.lease.horizon().get() / 2);
        self.not_before = now.saturating_add(pause);
    }

    /// Brings what is held up to date; what of it has reached its age is to be given back.
    fn settled(&mut self, now: Micros) -> Returned {
        for batch in &mut self.batches {
            batch.lapse(&self.check.algorithm, now);
        }
        let mut returned = Returned::new();
        while let Some(oldest) = self.batches.first()
            && (oldest.has_ended(now) || oldest.left() == 0)
        {
            let oldest = self.batches.remove(0);
            returned.extend(self.given_back(&oldest));
        }
        returned
    }

    fn given_back(&self, batch: &Batch) -> Option<OwnedCheck> {
        Some(self.check.with_action(batch.give_back()?))
    }

    fn held(&self) -> u32 {
        self.batches.iter().map(Batch::left).sum()
    }

    fn hand_out(&mut self, permits: u32) {
        let mut missing = permits;
        for batch in &mut self.batches {
            missing = batch.hand_out(missing);
        }
    }

    /// The batch to ask for now, if any.
    fn refill(&mut self, cost: u32, held: u32, now: Micros) -> Option<Refill> {
        let is_full = self.batches.len() == self.batches.inline_size();
        if held > self.low || self.refill.is_some() || is_full || now < self.not_before {
            return None;
        }
        let permits = self.wanted(cost, held)?;
        self.tickets = self.tickets.wrapping_add(1);
        let ticket = Ticket(self.tickets);
        self.refill = Some(ticket);
        Some(Refill { ticket, permits })
    }

    /// How many permits are worth a trip.
    fn wanted(&self, cost: u32, held: u32) -> Option<u32> {
        let algorithm: &Algorithm = &self.check.algorithm;
        let expected = self.demand.in_a_period();
        // As many as come back in the meantime, or the batch would not last: beyond those that others
        // have used, which come back before.
        let back = algorithm.permits_in(self.lease.horizon());
        let used = algorithm.capacity().saturating_sub(self.remaining);
        let lasting = back.saturating_sub(used);
        let most = algorithm.share_of_capacity(self.lease.most_share());
        let whole = lasting
            .clamp(expected, expected.saturating_mul(MOST_SPARE))
            .min(most)
            .min(self.ceiling);
        let permits = whole.checked_sub(held)?;
        // For so much of the time it lasts.
        let lasts = used.saturating_add(whole).min(back);
        let useful = match back {
            0 => expected.into(),
            back => u64::from(expected) * u64::from(lasts) / u64::from(back),
        };
        let saved = useful.min(permits.into()) / u64::from(cost.max(1));
        (saved >= FEWEST_SAVED.into()).then_some(permits)
    }
}
