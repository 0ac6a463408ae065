//! `Supply`: when to ask for the next batch of a subject, and for how many permits.

use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::store::QuotaLease;
use crate::store::claim::{Claim, Number};
use crate::time::Micros;

pub(super) struct Supply {
    lease: QuotaLease,
    demand: Demand,
    latency: Latency,
    /// At this many permits or fewer, the next batch is asked for.
    low: u32,
    awaited: Option<Awaited>,
    /// Batches asked for before this one are forgotten.
    known_since: Number,
    ceiling: Ceiling,
    /// No batch is asked for before this instant.
    not_before: Micros,
    /// How many permits were used in the store when it was asked for a batch at `used_at`.
    used: u32,
    used_at: Micros,
}

/// A batch in flight.
#[derive(Clone, Copy)]
struct Awaited {
    claim: Claim<Micros>,
    /// Whether it will be handed out when it arrives.
    is_wanted: bool,
}

/// What becomes of a batch that has arrived.
pub(super) enum Arrival {
    /// It is handed out.
    Wanted,
    /// It is given back: it is no longer needed, or it is late.
    Unwanted,
    /// The store forgot what it was taken from, before or after it was taken.
    Forgotten,
}

/// A batch to ask for.
pub(super) struct Refill {
    number: Number,
    pub(super) permits: u32,
}

impl Supply {
    pub(super) fn new(lease: QuotaLease) -> Self {
        Self {
            lease,
            demand: Demand::default(),
            latency: Latency::default(),
            low: 0,
            awaited: None,
            known_since: Number::next(),
            ceiling: Ceiling::NONE,
            not_before: Micros::ZERO,
            used: 0,
            used_at: Micros::ZERO,
        }
    }

    /// A new supply that knows nothing yet. It only waits for the batch in flight, to give it back.
    pub(super) fn anew(&self, lease: QuotaLease) -> Self {
        let mut anew = Self {
            known_since: self.known_since,
            awaited: self.awaited,
            ..Self::new(lease)
        };
        anew.wants_none();
        anew
    }

    pub(super) fn lease(&self) -> QuotaLease {
        self.lease
    }

    /// Whether a batch is in flight.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether this batch will be handed out when it arrives.
    pub(super) fn wants(&self, refill: &Refill) -> bool {
        self.awaited
            .is_some_and(|awaited| awaited.is_wanted && awaited.claim.is(refill.number))
    }

    /// Has the batch in flight given back when it arrives.
    pub(super) fn wants_none(&mut self) {
        if let Some(awaited) = &mut self.awaited {
            awaited.is_wanted = false;
        }
    }

    /// Stops waiting, and ignores what still arrives.
    pub(super) fn forget(&mut self) {
        self.awaited = None;
        self.known_since = Number::next();
    }

    /// Stops waiting for a batch that is overdue.
    pub(super) fn tidy(&mut self, now: Micros) {
        self.awaited
            .take_if(|awaited| awaited.claim.has_lapsed(now));
    }

    /// Notes that this many permits were asked for.
    #[inline]
    pub(super) fn note(&mut self, algorithm: &Algorithm, permits: u32, now: Micros) {
        // No batch has room for more, so it would answer other questions only. And who asks for
        // more is not charged if it is denied, and may ask again and again.
        if permits <= self.lease.most_permits(algorithm) {
            self.demand.note(permits, now, self.lease.horizon());
        }
    }

    /// The batch to ask for now, if any, given the permits held and the cost of a question. It is
    /// awaited until the given instant.
    #[inline]
    pub(super) fn refill(
        &mut self,
        algorithm: &Algorithm,
        held: u32,
        cost: u32,
        now: Micros,
        until: Micros,
    ) -> Option<Refill> {
        self.tidy(now);
        if held > self.low || self.is_awaited() || now < self.not_before {
            return None;
        }
        let back = algorithm.permits_in(now.saturating_sub(self.used_at));
        let prospect = Prospect {
            algorithm,
            lease: self.lease,
            expected: self.demand.in_a_period(),
            used: self.used.saturating_sub(back).saturating_sub(held),
            trip: self.latency.expected(now),
            held,
            ceiling: self.ceiling.permits(now, self.lease.horizon()),
            cost,
        };
        let permits = prospect.permits()?;
        let claim = Claim::until(until);
        self.awaited = Some(Awaited {
            claim,
            is_wanted: true,
        });
        Some(Refill {
            number: claim.number(),
            permits,
        })
    }

    /// The store's decision about a batch has arrived.
    pub(super) fn arrived(
        &mut self,
        refill: &Refill,
        algorithm: &Algorithm,
        decision: &Decision,
        sent: Micros,
        now: Micros,
    ) -> Arrival {
        if refill.number < self.known_since {
            return Arrival::Forgotten;
        }
        let awaited = self.has_come(refill);
        if !awaited.is_some_and(|awaited| awaited.is_wanted && !awaited.claim.has_lapsed(now)) {
            return Arrival::Unwanted;
        }
        self.used = algorithm.capacity().saturating_sub(decision.remaining);
        self.used_at = sent;
        let trip = now.saturating_sub(sent);
        self.latency.note(trip, now);
        if decision.is_allowed() {
            // Early enough for the next batch to arrive before the permits of this one have come
            // back.
            let on_the_way = algorithm.permits_in(trip);
            self.low = on_the_way.max(refill.permits / 2);
            self.ceiling.double(now, self.lease.horizon());
        } else {
            let fits = decision.remaining.min(refill.permits / 2);
            self.ceiling.lower(fits.max(FEWEST_SAVED), now);
            self.pause(now);
        }
        Arrival::Wanted
    }

    /// The batch did not arrive, for an unknown reason.
    pub(super) fn missed(&mut self, refill: &Refill, now: Micros) {
        if self.has_come(refill).is_some() {
            self.pause(now);
        }
    }

    /// Stops waiting for this batch, if it was awaited.
    fn has_come(&mut self, refill: &Refill) -> Option<Awaited> {
        self.awaited
            .take_if(|awaited| awaited.claim.is(refill.number))
    }

    fn pause(&mut self, now: Micros) {
        let pause = Micros::new(self.lease.horizon().get() / 2);
        self.not_before = now.saturating_add(pause);
    }
}

/// A batch is taken if it is expected to save at least this many round trips.
const FEWEST_SAVED: u32 = 8;

/// Some permits would come back before they are used. A batch takes at most this many times the
/// permits that are expected to be used: more would only be kept from others.
const MOST_SPARE: u32 = 8;

/// What is known about a subject when a batch may be asked for.
struct Prospect<'a> {
    algorithm: &'a Algorithm,
    lease: QuotaLease,
    /// The permits that are expected to be asked for within a horizon.
    expected: u32,
    /// The permits used in the store, without those held here.
    used: u32,
    /// How long the round trip is expected to take.
    trip: Micros,
    /// The permits held here.
    held: u32,
    /// The most permits to hold, whatever the share.
    ceiling: u32,
    /// The cost of one question.
    cost: u32,
}

impl Prospect<'_> {
    /// How many permits to ask for, if a round trip for them pays.
    fn permits(&self) -> Option<u32> {
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

#[derive(Clone, Copy)]
struct Ceiling {
    permits: u32,
    at: Micros,
}

impl Ceiling {
    const NONE: Self = Self {
        permits: u32::MAX,
        at: Micros::ZERO,
    };

    /// Lowers the ceiling to this many permits.
    fn lower(&mut self, permits: u32, now: Micros) {
        *self = Self { permits, at: now };
    }

    /// Doubles the current ceiling.
    fn double(&mut self, now: Micros, horizon: Micros) {
        self.lower(self.permits(now, horizon).saturating_mul(2), now);
    }

    /// The ceiling now: it doubles after each horizon. Without that, a low ceiling might never pay
    /// for a round trip, so no batch would ever find out that there is room again.
    fn permits(&self, now: Micros, horizon: Micros) -> u32 {
        let times = 2_u32.saturating_pow(half_lives(self.at, now, horizon));
        self.permits.saturating_mul(times)
    }
}

/// Counts permits in periods of a given length.
#[derive(Clone, Copy, Default)]
struct Demand {
    since: Micros,
    current: u32,
    before: u32,
}

impl Demand {
    fn note(&mut self, permits: u32, now: Micros, period: Micros) {
        let gone = now.saturating_sub(self.since).get();
        if gone >= period.get() {
            // Otherwise there was a period in which nobody asked.
            let is_next = gone < 2 * period.get();
            self.before = if is_next { self.current } else { 0 };
            self.current = 0;
            self.since = now;
        }
        self.current = self.current.saturating_add(permits);
    }

    /// The permits to expect in a period: at least as many as in the last one, and more as soon as
    /// more were asked for.
    fn in_a_period(&self) -> u32 {
        self.current.max(self.before)
    }
}

/// Not the lease's horizon: where permits may be held for less time than a trip takes, each batch
/// would be forgotten before the next one.
const HALF_LIFE: Micros = Micros::new(100_000);

#[derive(Clone, Copy, Default)]
struct Latency {
    longest: Micros,
    at: Micros,
}

impl Latency {
    fn note(&mut self, trip: Micros, now: Micros) {
        let longest = trip.max(self.expected(now));
        *self = Self { longest, at: now };
    }

    /// The longest of them, halved after each half-life. So a single slow trip is not expected for
    /// ever, even if it keeps batches from being asked for.
    fn expected(&self, now: Micros) -> Micros {
        let halvings = half_lives(self.at, now, HALF_LIFE);
        Micros::new(self.longest.get().checked_shr(halvings).unwrap_or(0))
    }
}

/// How many half-lives have passed since then.
fn half_lives(since: Micros, now: Micros, half_life: Micros) -> u32 {
    let gone = now.saturating_sub(since).get() / half_life.get().max(1);
    u32::try_from(gone).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Micros = Micros::new(100);

    #[test]
    fn demand_is_expected_again_until_a_whole_period_passes_without_any() {
        let mut demand = Demand::default();
        for (at, permits, expected) in [
            (1_000, 3, 3),
            (1_050, 4, 7),
            (1_100, 1, 7),
            (1_150, 9, 10),
            (1_200, 3, 10),
            (1_400, 2, 2),
        ] {
            demand.note(permits, Micros::new(at), PERIOD);
            assert_eq!(demand.in_a_period(), expected, "at {at}");
        }
    }

    #[test]
    fn the_longest_trip_is_expected_and_half_of_it_after_each_half_life() {
        let mut latency = Latency::default();
        for (at, trip, expected) in [
            (1_000_000, 8, 8),
            (1_050_000, 2, 8),
            (1_150_000, 2, 4),
            (1_199_000, 9, 9),
            (1_499_000, 0, 1),
            (9_999_000, 0, 0),
        ] {
            let now = Micros::new(at);
            latency.note(Micros::new(trip), now);
            let longest = latency.expected(now);
            assert_eq!(longest, Micros::new(expected), "at {at}");
        }
    }
}
