//! `Batch`: permits that were taken in one round trip and are handed out one by one.

use crate::algorithm::{Action, Algorithm};
use crate::decision::{Decision, Receipt};
use crate::time::Micros;

pub(super) struct Batch {
    left: u32,
    /// The store's decision that took them.
    decision: Decision,
    /// When it was sent, on this process's clock. The store decided no earlier.
    sent: Micros,
    /// From then on no permits are handed out.
    ends: Micros,
}

impl Batch {
    pub(super) fn new(permits: u32, decision: Decision, sent: Micros, age: Micros) -> Self {
        Self {
            left: permits,
            decision,
            sent,
            ends: sent.saturating_add(age),
        }
    }

    pub(super) fn left(&self) -> u32 {
        self.left
    }

    pub(super) fn has_ended(&self, now: Micros) -> bool {
        now >= self.ends
    }

    /// Drops the permits that have come back in the store by themselves, assuming the earliest
    /// case: that the store decided the moment it was asked.
    ///
    /// Call this before handing out any permits: permits handed out afterwards are then none of
    /// those that have come back.
    pub(super) fn lapse(&mut self, algorithm: &Algorithm, now: Micros) {
        let elapsed = now.saturating_sub(self.sent);
        let not_back = algorithm.permits_left_after(&self.decision, elapsed);
        self.left = self.left.min(not_back);
    }

    /// Hands out as many of these permits as there are. Returns how many are missing.
    pub(super) fn hand_out(&mut self, permits: u32) -> u32 {
        let handed_out = permits.min(self.left);
        self.left -= handed_out;
        permits - handed_out
    }

    /// The decision on a request served from the batch, with this many permits still held.
    pub(super) fn decision(&self, algorithm: &Algorithm, held: u32, now: Micros) -> Decision {
        let elapsed = now.saturating_sub(self.sent);
        Decision {
            reset_after: self.decision.reset_after.saturating_sub(elapsed),
            renews_after: self.decision.renews_after.saturating_sub(elapsed),
            // One receipt stands for the whole batch.
            receipt: Receipt::default(),
            is_from_batch: true,
            ..self.decision.with_held(held, algorithm.capacity())
        }
    }

    /// The action that gives back what is left.
    pub(super) fn give_back(&self) -> Option<Action> {
        // Not a refund: it would give permits back even if others have taken some since. Those
        // others were told a later time than would then be true, and would hand out their permits
        // together with the next taker.
        (self.left > 0).then_some(Action::Cancel {
            permits: self.left,
            receipt: self.decision.receipt,
        })
    }
}
