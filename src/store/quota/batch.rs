//! `Batch`: permits that were taken in one trip and are handed out one after the other.

use crate::algorithm::{Action, Algorithm};
use crate::decision::{Decision, Receipt};
use crate::time::Micros;

pub(super) struct Batch {
    left: u32,
    /// The store's decision that took them.
    decision: Decision,
    /// On the clock of this process; the store has decided no earlier.
    sent: Micros,
    /// From then on they are not handed out any more.
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

    /// Lets go of those permits that have come back in the store by themselves, as far as can be: as
    /// if it had decided as soon as it was asked.
    ///
    /// To be called before any are handed out: of what has come back, who was handed out something
    /// since took none.
    pub(super) fn lapse(&mut self, algorithm: &Algorithm, now: Micros) {
        let elapsed = now.saturating_sub(self.sent);
        let not_back = algorithm.permits_left_after(&self.decision, elapsed);
        self.left = self.left.min(not_back);
    }

    /// Hands out so many, or as many as there are; what is missing then.
    pub(super) fn hand_out(&mut self, permits: u32) -> u32 {
        let handed_out = permits.min(self.left);
        self.left -= handed_out;
        permits - handed_out
    }

    /// The decision on a request that permits were handed out to, when so many are left in hand.
    pub(super) fn decision(&self, algorithm: &Algorithm, held: u32, now: Micros) -> Decision {
        let elapsed = now.saturating_sub(self.sent);
        let capacity = algorithm.capacity();
        let remaining = self.decision.remaining.saturating_add(held).min(capacity);
        Decision {
            is_near_limit: u64::from(remaining) * 10 <= u64::from(capacity),
            remaining,
            reset_after: self.decision.reset_after.saturating_sub(elapsed),
            renews_after: self.decision.renews_after.saturating_sub(elapsed),
            // That of the batch stands for all of it.
            receipt: Receipt::default(),
            ..self.decision
        }
    }

    /// What gives back what is left.
    pub(super) fn give_back(&self) -> Option<Action> {
        // A refund would give back also where others have taken permits since. Those were told a
        // later time than theirs is then: they would hand them out together with who comes next.
        (self.left > 0).then_some(Action::Cancel {
            permits: self.left,
            receipt: self.decision.receipt,
        })
    }
}
