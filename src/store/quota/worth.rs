//! How many permits are worth a trip.

use super::lease::QuotaLease;
use crate::algorithm::Algorithm;
use crate::time::Micros;

/// A batch is taken when it is expected to save so many trips at least.
pub(super) const FEWEST_SAVED: u32 = 8;

/// Of permits that would come back before they are used, a batch takes so many times what is expected
/// to be used at most: the rest only keeps others from having them.
const MOST_SPARE: u32 = 8;

/// What there is to know about a subject when a batch may be asked for.
pub(super) struct Prospect<'a> {
    pub(super) algorithm: &'a Algorithm,
    pub(super) lease: QuotaLease,
    /// The permits that are expected to be asked for within a horizon.
    pub(super) expected: u32,
    /// Those that are used in the store, besides those in hand.
    pub(super) used: u32,
    /// How long the trip is expected to take.
    pub(super) trip: Micros,
    /// Those in hand.
    pub(super) held: u32,
    /// The most to hold, whatever the share.
    pub(super) ceiling: u32,
    /// What is asked for at a time.
    pub(super) cost: u32,
}

impl Prospect<'_> {
    /// The permits to ask for, if a trip for them pays.
    pub(super) fn permits(&self) -> Option<u32> {
        let back = self.algorithm.permits_in(self.lease.horizon());
        // As many as come back within the horizon, or the batch would not last: beyond those that
        // are used already, which come back before.
        let lasting = back.saturating_sub(self.used);
        // The trip counts twice: nobody here knows when the store decides on the way. Until it has,
        // what is in hand comes back; and since then, all the trip may have gone by.
        let way = self.trip.saturating_add(self.trip);
        let on_the_way = self.algorithm.permits_in(way);
        let whole = lasting
            .clamp(self.expected, self.expected.saturating_mul(MOST_SPARE))
            .saturating_add(on_the_way.saturating_sub(self.used))
            .min(self.algorithm.share_of_capacity(self.lease.most_share()))
            .min(self.ceiling);
        let permits = whole.checked_sub(self.held)?;
        let lasts = self.used.saturating_add(whole).saturating_sub(on_the_way);
        // For so much of the horizon.
        let useful = match back {
            0 => self.expected.into(),
            back => u64::from(self.expected) * u64::from(lasts.min(back)) / u64::from(back),
        };
        let saved = useful.min(permits.into()) / u64::from(self.cost.max(1));
        (saved >= FEWEST_SAVED.into()).then_some(permits)
    }
}
