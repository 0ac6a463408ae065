//! `Entry`: an answer of the store that is remembered.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::algorithm::{Algorithm, Known, Reading, Take};
use crate::time::Micros;

pub(super) struct Entry {
    /// In halves: whole, it would be aligned to 16 bytes, for which all entries together take a megabyte
    /// more.
    key: [u64; 2],
    known: Known,
    /// When the store was asked: it has decided no earlier.
    pub(super) sent: Micros,
    /// When its answer was there: it has decided no later.
    pub(super) received: Micros,
    /// From then on one question goes to the store, in microseconds.
    asked_again_us: AtomicU64,
    /// Of a ban: the same of one about what it guards of which nothing is known.
    guarded_asked_us: AtomicU64,
}

impl Entry {
    pub(super) fn new(
        key: u128,
        known: Known,
        sent: Micros,
        received: Micros,
        asked_again: Micros,
    ) -> Self {
        Self {
            key: halves(key),
            known,
            sent,
            received,
            asked_again_us: AtomicU64::new(asked_again.get()),
            guarded_asked_us: AtomicU64::default(),
        }
    }

    /// In place of one that it supersedes: the same ban is asked about no more often for being confirmed.
    pub(super) fn in_place_of(self, other: &Self) -> Self {
        let asked_us = other.guarded_asked_us.load(Ordering::Relaxed);
        Self {
            guarded_asked_us: AtomicU64::new(asked_us),
            ..self
        }
    }

    pub(super) fn key(&self) -> u128 {
        let [high, low] = self.key;
        u128::from(high) << u64::BITS | u128::from(low)
    }

    /// Too old, or from before the clock stepped back.
    pub(super) fn is_over(&self, now: Micros, max_age: Micros) -> bool {
        now < self.sent || now.saturating_sub(self.sent) >= max_age
    }

    /// Whether the other one tells of its key all that this one tells.
    pub(super) fn is_superseded_by(&self, other: &Self) -> bool {
        self.key == other.key && self.known.is_superseded_by(&other.known)
    }

    /// What the store would read now, as far as is known.
    ///
    /// It has decided some time between sending and receiving. A denial is known until its wait
    /// after sending is over, so never for longer than it lasts; the wait that is told is that after
    /// receiving, so never one that is too short.
    pub(super) fn reading(
        &self,
        algorithm: &Algorithm,
        take: &Take,
        now: Micros,
    ) -> Option<Reading> {
        let elapsed = now.saturating_sub(self.received);
        let reading = self.known.later(elapsed, algorithm, take)?;
        let trip = self.received.saturating_sub(self.sent);
        (reading.fits || reading.wait > trip).then_some(reading)
    }

    /// Whether it is time to ask the store again. Says so to one, and to another one after so long.
    pub(super) fn is_to_be_asked_again(&self, now: Micros, wait: Micros) -> bool {
        is_time(&self.asked_again_us, now, wait)
    }

    /// The same of what this ban guards.
    pub(super) fn is_guarded_to_be_asked(&self, now: Micros, wait: Micros) -> bool {
        is_time(&self.guarded_asked_us, now, wait)
    }
}

fn halves(key: u128) -> [u64; 2] {
    [(key >> u64::BITS) as u64, key as u64]
}

fn is_time(again_us: &AtomicU64, now: Micros, wait: Micros) -> bool {
    let relaxed = Ordering::Relaxed;
    let (at, next) = (again_us.load(relaxed), now.saturating_add(wait).get());
    now.get() >= at
        && again_us
            .compare_exchange(at, next, relaxed, relaxed)
            .is_ok()
}
