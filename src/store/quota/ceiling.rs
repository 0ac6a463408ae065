//! `Ceiling`: the most permits that a batch is asked for, since more was denied.

use super::latency::half_lives;
use crate::time::Micros;

#[derive(Clone, Copy)]
pub(super) struct Ceiling {
    permits: u32,
    at: Micros,
}

impl Ceiling {
    pub(super) const NONE: Self = Self {
        permits: u32::MAX,
        at: Micros::ZERO,
    };

    /// From now on no more than so many.
    pub(super) fn lower(&mut self, permits: u32, now: Micros) {
        *self = Self { permits, at: now };
    }

    /// Twice as many as now.
    pub(super) fn double(&mut self, now: Micros, horizon: Micros) {
        self.lower(self.permits(now, horizon).saturating_mul(2), now);
    }

    /// Twice as many after each horizon. So few may be too few to pay for a trip, and then no batch would ever come
    /// that tells that there is room again.
    pub(super) fn permits(&self, now: Micros, horizon: Micros) -> u32 {
        let times = 2_u32.saturating_pow(half_lives(self.at, now, horizon));
        self.permits.saturating_mul(times)
    }
}
