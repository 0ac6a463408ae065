//! `Entry`: an answer of the store that is remembered.

use std::ops::Deref;
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
    /// The same of one of which this tells too short a wait: for a larger cost, or, of a ban, about what it guards.
    more_asked_us: AtomicU64,
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
            more_asked_us: AtomicU64::default(),
        }
    }

    /// The key has been asked about for this one. Where there are some for other costs already, so often is it asked
    /// about for one more.
    pub(super) fn was_asked_beside(
        &self,
        others: impl Iterator<Item: Deref<Target = Self>>,
        each: Micros,
    ) {
        let mut has_others = false;
        // Beside them may stand a ban.
        for other in others.filter(|other| self.known.is_by_the_rules_of(&other.known)) {
            has_others |= !other.is_superseded_by(self);
            later(&self.more_asked_us, &other.more_asked_us);
        }
        if has_others {
            let _ = is_time(
                &self.more_asked_us,
                self.received,
                each,
                Micros::new(u64::MAX),
            );
        }
    }

    /// The store is asked about the key for this one, or has just been. What it denies then it denies to who takes
    /// more, too, so that those are not asked about so soon.
    pub(super) fn is_asked_for(&self, others: impl Iterator<Item: Deref<Target = Self>>) {
        for other in others.filter(|other| self.known.is_by_the_rules_of(&other.known)) {
            later(&other.more_asked_us, &self.more_asked_us);
            if self.known.denies_for(&other.known) {
                later(&other.asked_again_us, &self.asked_again_us);
            }
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
        is_time(&self.asked_again_us, now, wait, Micros::ZERO)
    }

    /// The same of who may have to wait for longer than this tells, so much ahead of time at most.
    pub(super) fn is_more_to_be_asked(&self, now: Micros, wait: Micros, ahead: Micros) -> bool {
        is_time(&self.more_asked_us, now, wait, ahead)
    }

    /// Whether this take has to wait no longer than this tells.
    pub(super) fn tells_all_of(&self, take: &Take) -> bool {
        self.known.tells_all_of(take)
    }
}

fn halves(key: u128) -> [u64; 2] {
    [(key >> u64::BITS) as u64, key as u64]
}

/// Puts one off until the other, unless it is later.
fn later(one_us: &AtomicU64, other_us: &AtomicU64) {
    one_us.fetch_max(other_us.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Whether it is time, or as near to it as may be. Says so to one, and puts others off for so long.
fn is_time(again_us: &AtomicU64, now: Micros, wait: Micros, ahead: Micros) -> bool {
    let relaxed = Ordering::Relaxed;
    let at = again_us.load(relaxed);
    let next = now.max(Micros::new(at)).saturating_add(wait).get();
    at <= now.saturating_add(ahead).get()
        && again_us
            .compare_exchange(at, next, relaxed, relaxed)
            .is_ok()
}
