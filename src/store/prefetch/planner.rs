//! `RefillPlanner`: the controller of an account. It decides when to ask the store for the next
//! batch of permits, and for how many.
//!
//! # What is measured
//!
//! - [`Demand`]: the permits that requests asked for here within a horizon (a tenth of a second, or half
//!   of the maximum age if that is less), whether memory or the store answered.
//! - [`Latency`]: the longest round trip of a batch lately, halved in each tenth of a second.
//! - What the fleet has used of the limit when the last batch was decided, less what has come back
//!   since and what is held here.
//! - [`Cap`]: how much may be asked for after a larger batch was denied.
//!
//! # What is set
//!
//! - When: as soon as the permits held are at the low watermark: half of the last batch, or what comes
//!   back during a round trip. So the next batch arrives before the last permit of this one is handed
//!   out or has come back in the store. One batch is in flight at a time.
//! - How many: the demand of a horizon; up to [`MAX_OVERSIZE`] times as many where permits would
//!   come back before they are used; and what comes back on the way. At most the share and the cap,
//!   less what is held. None if that saves fewer than [`MIN_SAVED`] round trips, so none at all if
//!   the share of the capacity is less than [`MIN_SAVED`] times the cost of a request.
//! - A pause of half a horizon after a batch that was denied or lost.
//!
//! # Why it is stable
//!
//! - Demand is what callers ask for, not what batches deliver, so the size of a batch changes
//!   nothing of the measurement that it follows from.
//! - What does feed back is a denial, as in TCP: it at least halves what may be asked for, which
//!   doubles with each batch that arrives and each horizon that passes. Processes that compete for
//!   a limit that is used up ask seldom and for little, and are back within a few horizons when
//!   there is room.
//! - Each measurement fades with time rather than with the next batch. So none that keeps batches
//!   from being asked for does so for ever.
//! - At most two batches are held or in flight, together at most the share. A wrong guess costs
//!   round trips, or keeps that much from others until the maximum age. It never hands out a permit
//!   too many: the account sees to that, whatever the planner does.

use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::store::Prefetch;
use crate::task::{LeaderClaim, Number};
use crate::time::Micros;

/// A batch is asked for if it is expected to save at least this many round trips.
const MIN_SAVED: u64 = 8;

/// Some permits would come back before they are used. A batch takes at most this many times the
/// permits that are expected to be used: more would only be kept from others.
const MAX_OVERSIZE: u64 = 8;

/// In this time the expected latency is halved. It is not the horizon, which can be shorter than a
/// round trip: then each latency would be forgotten before the next is measured.
const HALF_LIFE: Micros = Micros::new(100_000);

pub(super) struct RefillPlanner {
    prefetch: Prefetch,
    demand: Demand,
    latency: Latency,
    cap: Cap,
    /// How many permits were used in the store when it was asked for a batch at `used_at`.
    used: u64,
    used_at: Micros,
    /// At this many permits or fewer, the next batch is asked for.
    low_watermark: u64,
    /// No batch is asked for before this instant.
    not_before: Micros,
    in_flight: Option<InFlight>,
    /// Batches asked for before this one are forgotten.
    known_since: Number,
}

/// A batch in flight.
#[derive(Clone, Copy)]
struct InFlight {
    claim: LeaderClaim<Micros>,
    /// Whether it will be handed out when it arrives.
    is_wanted: bool,
}

/// A batch to ask for.
pub(super) struct Refill {
    number: Number,
    pub(super) permits: u64,
}

/// What to do with a batch that has arrived.
pub(super) enum Arrival {
    /// It is handed out.
    Wanted,
    /// It is given back: it is no longer needed, or it is late.
    Unwanted,
    /// The store forgot the state that it was acquired from, before or after that.
    Forgotten,
}

impl RefillPlanner {
    pub(super) fn new(prefetch: Prefetch) -> Self {
        Self {
            prefetch,
            demand: Demand::default(),
            latency: Latency::default(),
            cap: Cap::NONE,
            used: 0,
            used_at: Micros::ZERO,
            low_watermark: 0,
            not_before: Micros::ZERO,
            in_flight: None,
            known_since: Number::next(),
        }
    }

    /// A planner that knows nothing yet. It only waits for the batch in flight, to give it back.
    pub(super) fn restarted(&self, prefetch: Prefetch) -> Self {
        let mut restarted = Self {
            known_since: self.known_since,
            in_flight: self.in_flight,
            ..Self::new(prefetch)
        };
        restarted.want_none();
        restarted
    }

    pub(super) fn prefetch(&self) -> Prefetch {
        self.prefetch
    }

    pub(super) fn has_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether this batch will be handed out when it arrives.
    pub(super) fn wants(&self, refill: &Refill) -> bool {
        self.in_flight
            .is_some_and(|batch| batch.is_wanted && batch.claim.is(refill.number))
    }

    /// Has the batch in flight given back when it arrives.
    pub(super) fn want_none(&mut self) {
        if let Some(batch) = &mut self.in_flight {
            batch.is_wanted = false;
        }
    }

    /// Stops waiting, and ignores what still arrives.
    pub(super) fn forget(&mut self) {
        self.in_flight = None;
        self.known_since = Number::next();
    }

    /// Stops waiting for a batch that is overdue.
    pub(super) fn tidy(&mut self, now: Micros) {
        self.in_flight.take_if(|batch| batch.claim.has_lapsed(now));
    }

    /// Records that this many permits were asked for.
    #[inline]
    pub(super) fn record_demand(&mut self, algorithm: &Algorithm, permits: u64, now: Micros) {
        // No batch could answer this question. And a denied client is not charged, so it could raise
        // the demand again and again.
        if permits <= self.prefetch.most_permits(algorithm) {
            self.demand.record(permits, now, self.prefetch.horizon());
        }
    }

    /// The batch to ask for now, if any, given the permits held and the cost of a question. It is
    /// awaited until the given instant.
    #[inline]
    pub(super) fn plan(
        &mut self,
        algorithm: &Algorithm,
        held: u64,
        cost: u64,
        now: Micros,
        until: Micros,
    ) -> Option<Refill> {
        self.tidy(now);
        if held > self.low_watermark || self.has_in_flight() || now < self.not_before {
            return None;
        }
        let permits = self.batch_size(algorithm, held, cost, now)?;
        let claim = LeaderClaim::until(until);
        self.in_flight = Some(InFlight {
            claim,
            is_wanted: true,
        });
        Some(Refill {
            number: claim.number(),
            permits,
        })
    }

    /// How many permits to ask for, if a round trip for them pays.
    fn batch_size(&self, algorithm: &Algorithm, held: u64, cost: u64, now: Micros) -> Option<u64> {
        let horizon = self.prefetch.horizon();
        let expected = self.demand.per_horizon();
        let round_trip = self.latency.expected(now);
        let back_since = algorithm.permits_in(now.saturating_sub(self.used_at));
        let used = self.used.saturating_sub(back_since).saturating_sub(held);
        // As many as come back within the horizon, or the batch would not last. Permits already
        // used come back first, so they are subtracted.
        let back = algorithm.permits_in(horizon);
        let lasting = back.saturating_sub(used);
        // The round trip counts twice, since the store decides at an unknown instant during it.
        // Until then, the permits held come back; and afterwards a whole one may already have
        // passed.
        let on_the_way = algorithm.permits_in(round_trip.saturating_add(round_trip));
        let whole = lasting
            .clamp(expected, expected.saturating_mul(MAX_OVERSIZE))
            .saturating_add(on_the_way.saturating_sub(used))
            .min(self.prefetch.most_permits(algorithm))
            .min(self.cap.permits(now, horizon));
        let permits = whole.checked_sub(held)?;
        // The batch is useful until its permits have come back, or until they are too old.
        let lasts = used.saturating_add(whole).saturating_sub(on_the_way);
        let while_it_lasts = match back {
            0 => expected,
            back => part(expected, lasts, back),
        };
        let held_for = self.prefetch.most_age().saturating_sub(round_trip);
        let while_held = part(expected, held_for.get(), horizon.get());
        let saved = permits.min(while_it_lasts).min(while_held) / cost.max(1);
        (saved >= MIN_SAVED).then_some(permits)
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
        let batch = self.end_wait(refill);
        if !batch.is_some_and(|batch| batch.is_wanted && !batch.claim.has_lapsed(now)) {
            return Arrival::Unwanted;
        }
        self.used = algorithm.capacity().saturating_sub(decision.remaining);
        self.used_at = sent;
        let round_trip = now.saturating_sub(sent);
        self.latency.record(round_trip, now);
        if decision.is_allowed() {
            self.low_watermark = algorithm.permits_in(round_trip).max(refill.permits / 2);
            self.cap.double(now, self.prefetch.horizon());
        } else {
            let fits = decision.remaining.min(refill.permits / 2);
            self.cap.lower(fits.max(MIN_SAVED), now);
            self.pause(now);
        }
        Arrival::Wanted
    }

    /// The batch did not arrive, for an unknown reason.
    pub(super) fn missed(&mut self, refill: &Refill, now: Micros) {
        if self.end_wait(refill).is_some() {
            self.pause(now);
        }
    }

    /// Stops waiting for this batch, if it was awaited.
    fn end_wait(&mut self, refill: &Refill) -> Option<InFlight> {
        self.in_flight
            .take_if(|batch| batch.claim.is(refill.number))
    }

    fn pause(&mut self, now: Micros) {
        let pause = Micros::new(self.prefetch.horizon().get() / 2);
        self.not_before = now.saturating_add(pause);
    }
}

/// How many permits were asked for lately, counted in periods of a horizon.
#[derive(Clone, Copy, Default)]
struct Demand {
    since: Micros,
    current: u64,
    before: u64,
}

impl Demand {
    fn record(&mut self, permits: u64, now: Micros, horizon: Micros) {
        let gone = now.saturating_sub(self.since).get();
        if gone >= horizon.get() {
            // Otherwise there was a period without demand.
            let is_next = gone < 2 * horizon.get();
            self.before = if is_next { self.current } else { 0 };
            self.current = 0;
            self.since = now;
        }
        self.current = self.current.saturating_add(permits);
    }

    /// The permits to expect in a horizon: at least as many as in the last one, and more as soon as
    /// more were asked for.
    fn per_horizon(&self) -> u64 {
        self.current.max(self.before)
    }
}

/// How long round trips for batches have taken lately.
#[derive(Clone, Copy, Default)]
struct Latency {
    longest: Micros,
    at: Micros,
}

impl Latency {
    fn record(&mut self, round_trip: Micros, now: Micros) {
        let longest = round_trip.max(self.expected(now));
        *self = Self { longest, at: now };
    }

    /// The longest of them, halved after each half-life. So a single slow one is not expected for
    /// ever, even if it keeps batches from being asked for.
    fn expected(&self, now: Micros) -> Micros {
        let halvings = periods(self.at, now, HALF_LIFE);
        Micros::new(self.longest.get().checked_shr(halvings).unwrap_or(0))
    }
}

/// Bounds the size of a batch after a larger one was denied.
#[derive(Clone, Copy)]
struct Cap {
    permits: u64,
    at: Micros,
}

impl Cap {
    const NONE: Self = Self {
        permits: u64::MAX,
        at: Micros::ZERO,
    };

    fn lower(&mut self, permits: u64, now: Micros) {
        *self = Self { permits, at: now };
    }

    fn double(&mut self, now: Micros, horizon: Micros) {
        self.lower(self.permits(now, horizon).saturating_mul(2), now);
    }

    /// The cap now: it doubles after each horizon. Without that, a low one might never pay for a
    /// round trip, so no batch would ever find out that there is room again.
    fn permits(&self, now: Micros, horizon: Micros) -> u64 {
        let times = 2_u64.saturating_pow(periods(self.at, now, horizon));
        self.permits.saturating_mul(times)
    }
}

/// How many whole periods have passed since then.
fn periods(since: Micros, now: Micros, period: Micros) -> u32 {
    let gone = now.saturating_sub(since).get() / period.get().max(1);
    u32::try_from(gone).unwrap_or(u32::MAX)
}

/// This part of the permits, at most all of them.
fn part(permits: u64, numerator: u64, denominator: u64) -> u64 {
    (u128::from(permits) * u128::from(numerator.min(denominator)) / u128::from(denominator)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

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
            demand.record(permits, Micros::new(at), Micros::new(100));
            assert_eq!(demand.per_horizon(), expected, "at {at}");
        }
    }

    #[test]
    fn the_longest_round_trip_is_expected_and_half_of_it_after_each_half_life() {
        let mut latency = Latency::default();
        for (at, round_trip, expected) in [
            (1_000_000, 8, 8),
            (1_050_000, 2, 8),
            (1_150_000, 2, 4),
            (1_199_000, 9, 9),
            (1_499_000, 0, 1),
            (9_999_000, 0, 0),
        ] {
            let now = Micros::new(at);
            latency.record(Micros::new(round_trip), now);
            let longest = latency.expected(now);
            assert_eq!(longest, Micros::new(expected), "at {at}");
        }
    }
}
