//! `Supply`: when to ask for the next batch of a subject, and for how many permits.

use super::ceiling::Ceiling;
use super::demand::Demand;
use super::latency::Latency;
use super::lease::QuotaLease;
use super::worth::{FEWEST_SAVED, Prospect};
use crate::algorithm::Algorithm;
use crate::decision::Decision;
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
