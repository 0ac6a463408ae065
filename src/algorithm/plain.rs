//! `PlainTake`: the take that most requests are, of which one integer tells all.

use super::{Action, Algorithm, Reading, Which};
use crate::time::Micros;

/// A take for good of a key whose whole state is a debt in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainTake {
    /// What it costs, in time.
    pub(crate) cost_us: u64,
    /// The most debt with which it fits.
    pub(crate) room_us: u64,
}

impl PlainTake {
    /// `None` of a take that is none of these: one that waits or may be given back, that only looks or
    /// never fits, of a queue, of another algorithm, or of a rate that needs a fraction.
    pub(crate) fn of(algorithm: &Algorithm, action: &Action) -> Option<Self> {
        let (
            Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt),
            Action::Take(take),
        ) = (&algorithm.0, action)
        else {
            return None;
        };
        let [cost_us, room_us] = debt.plain(take)?;
        Some(Self { cost_us, room_us })
    }

    /// What a key that owes so much says about it.
    pub(crate) fn read(self, debt_us: u64) -> Reading {
        Reading {
            fits: debt_us <= self.room_us,
            wait: Micros::new(debt_us.saturating_sub(self.room_us)),
            level: [debt_us, 0],
            // Nobody asks when it was: it is for good.
            at: Micros::ZERO,
        }
    }

    /// The same behind so many of its like, of which as many are let in as fit.
    pub(crate) fn read_behind(self, debt_us: u64, others: u32) -> Reading {
        let fitting = match self.room_us.checked_sub(debt_us) {
            Some(room_us) => room_us / self.cost_us + 1,
            None => 0,
        };
        self.read(debt_us + self.cost_us * fitting.min(others.into()))
    }
}
