//! `Ceiling`: bounds the size of a batch after a larger one was denied.

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

    /// Lowers the ceiling to this many permits.
    pub(super) fn lower(&mut self, permits: u32, now: Micros) {
        *self = Self { permits, at: now };
    }

    /// Doubles the current ceiling.
    pub(super) fn double(&mut self, now: Micros, horizon: Micros) {
        self.lower(self.permits(now, horizon).saturating_mul(2), now);
    }

    /// The ceiling now: it doubles after each horizon. Without that, a low ceiling might never pay
    /// for a round trip, so no batch would ever find out that there is room again.
    pub(super) fn permits(&self, now: Micros, horizon: Micros) -> u32 {
        let times = 2_u32.saturating_pow(half_lives(self.at, now, horizon));
        self.permits.saturating_mul(times)
    }
}
