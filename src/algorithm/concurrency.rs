//! Concurrency: at most `limit` permits held at the same time. Mirrors `lua/concurrency.lua`.
//!
//! Permits are held by leases, each of which lapses unless it is renewed. Permits that are acquired
//! without a lease, or charged without asking, are held in one common lease.

use std::collections::{BTreeSet, HashMap};

use super::action::{Acquire, Action, LeaseId};
use super::arithmetic::{Arithmetic, Left};
use super::reading::{Arguments, Reading, Share, fits, padded, remaining};
use crate::limit::{MOST_PERMITS, ValidLimit};
use crate::time::Micros;

/// The common lease of permits acquired without one.
const NOBODY: u64 = 0;
/// At most this many leases are examined to compute a wait, since other questions wait meanwhile.
pub(super) const MOST_LOOKED_AT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Concurrency {
    limit: u64,
    lease: Micros,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    held: u64,
    leases: HashMap<u64, Lease>,
    /// When each lease lapses, and its number.
    lapses: BTreeSet<(Micros, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    permits: u64,
    lapses: Micros,
}

impl Concurrency {
    pub(super) fn new(limit: &ValidLimit) -> Self {
        Self {
            limit: limit.permits,
            lease: limit.period,
        }
    }

    pub(super) fn lease(&self) -> Micros {
        self.lease
    }

    /// Whether it begins more than a life from now, if it is a lease of this life.
    fn is_ahead(&self, lapses: Micros, now: Micros) -> bool {
        let life = self.lease;
        lapses > now.saturating_add(life).saturating_add(life)
    }

    fn hold(&self, state: &mut State, now: Micros, number: u64, permits: u64) {
        let before = state.lease(number, now).unwrap_or_default();
        let others = state.held(now) - before.permits;
        let room = MOST_PERMITS.saturating_sub(others);
        let lease = Lease {
            permits: room.min(before.permits.saturating_add(permits)),
            lapses: before.lapses.max(now.saturating_add(self.lease)),
        };
        if lease.permits > 0 {
            state.drop_lapsed(now);
            state.end(number);
            state.enter(number, lease);
        }
    }
}

impl State {
    fn live(&self, now: Micros) -> impl Iterator<Item = &(Micros, u64)> {
        let next = now.saturating_add(Micros::new(1));
        self.lapses.range((next, 0)..)
    }

    fn lapsed(&self, now: Micros) -> impl Iterator<Item = &(Micros, u64)> {
        self.lapses.range(..=(now, u64::MAX))
    }

    /// How long until so many permits are free, if no lease is renewed or released. Leases that are
    /// not examined count as holding one permit each, so the wait is rather too long than too short.
    fn free_in(&self, now: Micros, wanted: u64) -> Micros {
        let mut freed = 0;
        // Of the leases that lapse at one instant, either all are examined or none, as their order
        // is random.
        let not_looked_at = self.live(now).nth(MOST_LOOKED_AT);
        let enough = self.live(now).find(|(lapses, number)| {
            let is_looked_at = not_looked_at.is_none_or(|(others, _)| lapses < others);
            freed += if is_looked_at {
                self.leases[number].permits
            } else {
                1
            };
            freed >= wanted
        });
        let enough = enough.or(self.lapses.last());
        enough.map_or(Micros::ZERO, |(lapses, _)| lapses.saturating_sub(now))
    }

    fn held(&self, now: Micros) -> u64 {
        let lapsed = self.lapsed(now);
        let lapsed: u64 = lapsed.map(|(_, number)| self.leases[number].permits).sum();
        self.held - lapsed
    }

    /// A lease that has not lapsed.
    fn lease(&self, number: u64, now: Micros) -> Option<Lease> {
        let lease = self.leases.get(&number).copied();
        lease.filter(|lease| lease.lapses > now)
    }

    fn drop_lapsed(&mut self, now: Micros) {
        let lapsed: Vec<u64> = self.lapsed(now).map(|(_, number)| *number).collect();
        for number in lapsed {
            self.end(number);
        }
    }

    fn enter(&mut self, number: u64, lease: Lease) {
        self.held += lease.permits;
        self.lapses.insert((lease.lapses, number));
        self.leases.insert(number, lease);
    }

    fn end(&mut self, number: u64) -> Option<Lease> {
        let lease = self.leases.remove(&number)?;
        self.held -= lease.permits;
        self.lapses.remove(&(lease.lapses, number));
        Some(lease)
    }
}

impl Arithmetic for Concurrency {
    type State = State;

    /// Repairs the common lease alone. Another lease may really have been granted for longer.
    fn repaired(&self, state: &State, now: Micros, _: &Action) -> Option<State> {
        let (last, _) = state.lapses.last()?;
        if !self.is_ahead(*last, now) {
            return None;
        }
        let common = state.leases.get(&NOBODY)?;
        self.is_ahead(common.lapses, now).then(|| {
            let mut repaired = state.clone();
            if let Some(common) = repaired.end(NOBODY) {
                let lapses = now.saturating_add(self.lease);
                repaired.enter(NOBODY, Lease { lapses, ..common });
            }
            repaired
        })
    }

    fn read(&self, state: &State, now: Micros, acquire: &Acquire) -> Reading {
        let held = state.held(now);
        let fits = fits(held, acquire.cost, self.limit);
        let last = state.lapses.last();
        Reading {
            fits,
            wait: if fits {
                Micros::ZERO
            } else if acquire.cost > self.limit {
                // It outlasts every lease.
                self.lease
            } else {
                state.free_in(now, held + acquire.cost - self.limit)
            },
            level: [
                held,
                last.map_or(0, |(lapses, _)| lapses.saturating_sub(now).get()),
            ],
            next: Micros::ZERO,
            at: now,
        }
    }

    fn charge(&self, state: &mut State, now: Micros, permits: u64) {
        self.hold(state, now, NOBODY, permits);
    }

    fn take(&self, state: &mut State, now: Micros, acquire: &Acquire) {
        let number = acquire.lease.map_or(NOBODY, LeaseId::get);
        self.hold(state, now, number, acquire.cost);
    }

    /// Permits are given back from the common lease; any other lease is released by its holder.
    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        let number = action.lease().map_or(NOBODY, LeaseId::get);
        let Some(mut lease) = state.lease(number, now) else {
            return;
        };
        match action {
            Action::Renew(_) => lease.lapses = lease.lapses.max(now.saturating_add(self.lease)),
            Action::Release(_) => lease.permits = 0,
            _ if action.permits() == 0 => return,
            _ => lease.permits = lease.permits.saturating_sub(action.permits()),
        }
        if !matches!(action, Action::Renew(_)) {
            state.drop_lapsed(now);
        }
        state.end(number);
        if lease.permits > 0 {
            state.enter(number, lease);
        }
    }

    fn expires_at(state: &State) -> Micros {
        state
            .lapses
            .last()
            .map_or(Micros::ZERO, |(lapses, _)| *lapses)
    }

    fn scale(&mut self, share: Share) {
        self.limit = share.of(self.limit);
    }

    fn quota(&self) -> (u64, Micros) {
        (self.limit, Micros::ZERO)
    }

    fn left(&self, reading: &Reading, charged: u64) -> Left {
        let [held, empty_in] = reading.level;
        let mut empty_in = Micros::new(empty_in);
        if charged > 0 {
            empty_in = empty_in.max(self.lease);
        }
        let held = held.saturating_add(charged);
        Left::new(remaining(self.limit, held), reading.next, empty_in)
    }

    fn arguments(&self, action: &Action) -> Arguments {
        let lease = action.lease().map_or(NOBODY, LeaseId::get);
        padded([action.permits(), self.limit, self.lease.get(), lease])
    }
}
