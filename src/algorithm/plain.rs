//! `PlainTake`: the take that most requests are, of which one integer tells all.

#[cfg(any(feature = "memory", feature = "redis"))]
use super::Reading;
#[cfg(feature = "redis")]
use super::{Action, Algorithm, Which};
#[cfg(any(feature = "memory", feature = "redis"))]
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
    #[cfg(feature = "redis")]
    pub(crate) fn of(algorithm: &Algorithm, action: &Action) -> Option<Self> {
        ScaledTake::of(algorithm, action)?.plain()
    }

    /// What a key that owes so much says about it.
    #[cfg(any(feature = "memory", feature = "redis"))]
    #[inline]
    pub(crate) fn read(self, debt_us: u64) -> Reading {
        Reading {
            fits: debt_us <= self.room_us,
            wait: Micros::new(debt_us.saturating_sub(self.room_us)),
            level: [debt_us, 0],
            // Nobody asks when it was: it is for good.
            at: Micros::ZERO,
        }
    }

    /// How many of these others of its like fit, one after the other, when the key owes so much before.
    #[cfg(feature = "redis")]
    pub(crate) fn fitting(self, debt_us: u64, others: u64) -> u64 {
        match self.room_us.checked_sub(debt_us) {
            // Before most there is none, and a division takes long.
            Some(room_us) if others > 0 => others.min(room_us / self.cost_us + 1),
            _ => 0,
        }
    }

    /// What the key says about it after so many of its like were let in.
    #[cfg(feature = "redis")]
    pub(crate) fn read_after(self, debt_us: u64, others: u64) -> Reading {
        self.read(debt_us + self.cost_us * others)
    }
}

/// The same at a rate that may need a fraction: all is counted in parts of a microsecond.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScaledTake {
    /// So many parts are a microsecond.
    pub(crate) scale: u32,
    /// As if a part were one.
    pub(crate) parts: PlainTake,
}

#[cfg(feature = "redis")]
impl ScaledTake {
    /// `None` also of a rate whose parts are so small that the numbers of a script have no room for them.
    pub(crate) fn of(algorithm: &Algorithm, action: &Action) -> Option<Self> {
        match &algorithm.0 {
            Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt) => {
                debt.scaled_take(action)
            }
            _ => None,
        }
    }

    /// As a plain take, where no fraction is needed.
    pub(crate) fn plain(self) -> Option<PlainTake> {
        (self.scale == 1).then_some(self.parts)
    }

    /// What a key that owes so many parts says about it behind so many of its like, of which as many are let in as
    /// fit.
    pub(crate) fn read_behind(self, debt: u64, others: u32) -> Reading {
        let read = self
            .parts
            .read_after(debt, self.parts.fitting(debt, others.into()));
        if self.scale == 1 {
            return read;
        }
        let (scale, [debt, _]) = (u64::from(self.scale), read.level);
        Reading {
            wait: Micros::new(read.wait.get().div_ceil(scale)),
            level: [debt / scale, debt % scale],
            ..read
        }
    }
}
