//! How many permits are worth a round trip.

use super::lease::QuotaLease;
use crate::algorithm::Algorithm;
use crate::time::Micros;

/// A batch is taken if it is expected to save at least this many round trips.
pub(super) const FEWEST_SAVED: u32 = 8;

/// Some permits would come back before they are used. A batch takes at most this many times the
/// permits that are expected to be used: more would only be kept from others.
const MOST_SPARE: u32 = 8;

/// What is known about a subject when a batch may be asked for.
pub(super) struct Prospect<'a> {
    pub(super) algorithm: &'a Algorithm,
    pub(super) lease: QuotaLease,
    /// The permits that are expected to be asked for within a horizon.
    pub(super) expected: u32,
    /// The permits used in the store, without those held here.
    pub(super) used: u32,
    /// How long the round trip is expected to take.
    pub(super) trip: Micros,
    /// The permits held here.
    pub(super) held: u32,
    /// The most permits to hold, whatever the share.
    pub(super) ceiling: u32,
    /// The cost of one question.
    pub(super) cost: u32,
}

impl Prospect<'_> {
    /// How many permits to ask for, if a round trip for them pays.
    pub(super) fn permits(&self) -> Option<u32> {
        let horizon = self.lease.horizon();
        let back = self.algorithm.permits_in(horizon);
        // As many as come back within the horizon, or the batch would not last. Permits already
        // used come back first, so they are subtracted.
        let lasting = back.saturating_sub(self.used);
        // The trip counts twice, since nobody here knows when during it the store decides. Until
        // then, the permits held come back; and afterwards a whole trip may already have passed.
        let way = self.trip.saturating_add(self.trip);
        let on_the_way = self.algorithm.permits_in(way);
        let whole = lasting
            .clamp(self.expected, self.expected.saturating_mul(MOST_SPARE))
            .saturating_add(on_the_way.saturating_sub(self.used))
            .min(self.lease.most_permits(self.algorithm))
            .min(self.ceiling);
        let permits = whole.checked_sub(self.held)?;
        let lasts = self.used.saturating_add(whole).saturating_sub(on_the_way);
        // The batch is useful until its permits have come back, or until they are too old.
        let while_it_lasts = match back {
            0 => self.expected,
            back => part(self.expected, lasts.into(), back.into()),
        };
        let held_for = self.lease.most_age().saturating_sub(self.trip);
        let while_held = part(self.expected, held_for.get(), horizon.get());
        let useful = while_it_lasts.min(while_held);
        let saved = useful.min(permits) / self.cost.max(1);
        (saved >= FEWEST_SAVED).then_some(permits)
    }
}

/// This part of the permits, at most all of them.
fn part(permits: u32, numerator: u64, denominator: u64) -> u32 {
    (u64::from(permits) * numerator.min(denominator) / denominator) as u32
}
