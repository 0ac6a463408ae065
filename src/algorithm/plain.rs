//! `PlainTake`: the take that most requests are, of which one integer tells all.

use super::{Action, Algorithm, Take, Which};
use crate::decision::Decision;

/// A take for good of a key whose whole state is a debt in whole microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainTake {
    /// What it costs, in time.
    pub(crate) cost_us: u64,
    /// The most debt with which it fits.
    pub(crate) room_us: u64,
}

impl PlainTake {
    /// `None` of a take that is none of these: one that waits or may be given back, that only looks or
    /// never fits, of a queue, of another algorithm, or of a rate that needs a fraction.
    pub(crate) fn of(algorithm: &Algorithm, take: &Take) -> Option<Self> {
        let (Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt)) =
            &algorithm.0
        else {
            return None;
        };
        let [cost_us, room_us] = debt.plain(take)?;
        Some(Self { cost_us, room_us })
    }
}

impl Algorithm {
    /// The answer to a plain take of a key that owed so much; `None` to any other action.
    pub(crate) fn decide_plain(&self, debt_us: u64, action: &Action) -> Option<Decision> {
        let (Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt)) = &self.0
        else {
            return None;
        };
        let Action::Take(take) = action else {
            return None;
        };
        let reading = debt.read_debt(debt_us, take);
        Some(self.decide(&reading, action, reading.fits))
    }
}
