//! `Supply`: when the next batch of a subject is asked for, and of how many permits.

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
    /// When no more than so many are left, more are taken.
    low: u32,
    awaited: Option<Awaited>,
    /// What was asked for before is forgotten.
    known_since: Number,
    ceiling: Ceiling,
    /// No batch is asked for before.
    not_before: Micros,
    /// What was used in the store, when it was asked for a batch at this instant.
    used: u32,
    used_at: Micros,
}

/// A batch on its way.
#[derive(Clone, Copy)]
struct Awaited {
    claim: Claim<Micros>,
    /// Whether it is handed out when it comes.
    is_wanted: bool,
}

/// What becomes of a batch that has come.
pub(super) enum Arrival {
    /// It is handed out.
    Wanted,
    /// It is given back: it is of no use any more, or it is late.
    Unwanted,
    /// What it was taken of was forgotten, before it was taken or since.
    Forgotten,
}

/// A batch that is to be asked for.
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

    /// One that knows nothing yet, and only waits for what is on its way to this one, to give it back.
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

    /// Whether a batch is on its way.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether this batch is handed out when it comes.
    pub(super) fn wants(&self, refill: &Refill) -> bool {
        self.awaited
            .is_some_and(|awaited| awaited.is_wanted && awaited.claim.is(refill.number))
    }

    /// What is on its way is given back when it comes.
    pub(super) fn wants_none(&mut self) {
        if let Some(awaited) = &mut self.awaited {
            awaited.is_wanted = false;
        }
    }

    /// Waits for nothing any more, and what comes is of no meaning.
    pub(super) fn forget(&mut self) {
        self.awaited = None;
        self.known_since = Number::next();
    }

    /// Waits no longer for what has not come in time.
    pub(super) fn tidy(&mut self, now: Micros) {
        self.awaited
            .take_if(|awaited| awaited.claim.has_lapsed(now));
    }

    /// So many permits were asked for.
    #[inline]
    pub(super) fn note(&mut self, permits: u32, now: Micros) {
        self.demand.note(permits, now, self.lease.horizon());
    }

    /// The batch to ask for now, if any, when so many are held and so many are asked for at a time. It is
    /// waited for until the given instant.
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
            trip: self.latency.expected(now, self.lease.horizon()),
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

    /// The store's decision about a batch has come.
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
        self.latency.note(trip, now, self.lease.horizon());
        if decision.is_allowed() {
            // In time for the next one to be here before this one has come back.
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

    /// No batch has come, and why is not known.
    pub(super) fn missed(&mut self, refill: &Refill, now: Micros) {
        if self.has_come(refill).is_some() {
            self.pause(now);
        }
    }

    /// Waits for this batch no longer, if it was waited for.
    fn has_come(&mut self, refill: &Refill) -> Option<Awaited> {
        self.awaited
            .take_if(|awaited| awaited.claim.is(refill.number))
    }

    fn pause(&mut self, now: Micros) {
        let pause = Micros::new(self.lease.horizon().get() / 2);
        self.not_before = now.saturating_add(pause);
    }
}
