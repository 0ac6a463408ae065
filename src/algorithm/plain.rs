//! `PlainTake`: what most requests do. One integer of the key's state decides it.

#[cfg(any(feature = "memory", feature = "redis"))]
use super::Reading;
#[cfg(feature = "redis")]
use super::{Action, Algorithm};
#[cfg(any(feature = "memory", feature = "redis"))]
use crate::time::Micros;

/// A final take from a key whose whole state is a debt in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainTake {
    /// Its cost, as time.
    pub(crate) cost_us: u64,
    /// The most debt with which it fits.
    pub(crate) room_us: u64,
}

impl PlainTake {
    /// `None` for any other take: one that waits or may be given back, that only looks or never
    /// fits, of a queue, of another algorithm, or of a rate that needs a fraction.
    #[cfg(feature = "redis")]
    pub(crate) fn of(algorithm: &Algorithm, action: &Action) -> Option<Self> {
        ScaledTake::of(algorithm, action)?.plain()
    }

    /// The reading for a key with this debt.
    #[cfg(any(feature = "memory", feature = "redis"))]
    #[inline]
    pub(crate) fn read(self, debt_us: u64) -> Reading {
        Reading {
            fits: debt_us <= self.room_us,
            wait: Micros::new(debt_us.saturating_sub(self.room_us)),
            level: [debt_us, 0],
            next: Micros::ZERO,
            // Nobody needs the instant: the permits are not given back.
            at: Micros::ZERO,
        }
    }

    /// How many of `others` equal takes fit, one after the other, given this debt before them.
    #[cfg(feature = "redis")]
    pub(crate) fn fitting(self, debt_us: u64, others: u64) -> u64 {
        match self.room_us.checked_sub(debt_us) {
            // For most takes there are no others, and a division is slow.
            Some(room_us) if others > 0 => others.min(room_us / self.cost_us + 1),
            _ => 0,
        }
    }

    /// The reading after this many equal takes were admitted.
    #[cfg(feature = "redis")]
    pub(crate) fn read_after(self, debt_us: u64, others: u64) -> Reading {
        self.read(debt_us + self.cost_us * others)
    }
}

/// The same for a rate that may need a fraction: everything counts in parts of a microsecond.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScaledTake {
    /// The number of parts in a microsecond.
    pub(crate) scale: u32,
    /// The take with parts in place of microseconds.
    pub(crate) parts: PlainTake,
}

#[cfg(feature = "redis")]
impl ScaledTake {
    /// `None` also if the parts are too small for a script's numbers.
    pub(crate) fn of(algorithm: &Algorithm, action: &Action) -> Option<Self> {
        algorithm.debt()?.scaled_take(action)
    }

    /// As a plain take, if no fraction is needed.
    pub(crate) fn plain(self) -> Option<PlainTake> {
        (self.scale == 1).then_some(self.parts)
    }

    /// The reading for a key that owes this many parts, after this many equal takes, of which as
    /// many are admitted as fit.
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
