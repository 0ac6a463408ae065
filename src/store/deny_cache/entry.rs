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
    /// When the next question is to go to the store, in microseconds.
    again_us: AtomicU64,
    /// The same for questions of which this tells too short a wait: for a larger cost, or, of a ban, about
    /// what it guards.
    more_us: AtomicU64,
}

impl Entry {
    pub(super) fn new(
        key: u128,
        known: Known,
        sent: Micros,
        received: Micros,
        again: Micros,
    ) -> Self {
        Self {
            key: halves(key),
            known,
            sent,
            received,
            again_us: AtomicU64::new(again.get()),
            more_us: AtomicU64::default(),
        }
    }

    /// Takes the turns over that the other entries of its key have given. Where some of them stay beside it, the
    /// question that brought this one was such a turn itself: else who asks at another cost each time had one for each.
    pub(super) fn take_over_turns(
        &self,
        others: impl Iterator<Item: Deref<Target = Self>>,
        each: Micros,
    ) {
        let mut has_others = false;
        // Beside them may stand a ban.
        for other in others.filter(|other| self.known.is_by_the_rules_of(&other.known)) {
            has_others |= !other.is_superseded_by(self);
            put_off(&self.more_us, &other.more_us);
        }
        if has_others {
            let _ = take_turn(&self.more_us, self.received, each, Micros::new(u64::MAX));
        }
    }

    /// Puts off the questions for which the other entries of its key would have turns: the store is asked for this
    /// one, or has just been. What it denies to this cost it denies to larger ones, too.
    pub(super) fn put_off_others(&self, others: impl Iterator<Item: Deref<Target = Self>>) {
        for other in others.filter(|other| self.known.is_by_the_rules_of(&other.known)) {
            put_off(&other.more_us, &self.more_us);
            if self.known.denies_for(&other.known) {
                put_off(&other.again_us, &self.again_us);
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

    /// Whether it is this question's turn to go to the store. The next one's is `pause` later.
    pub(super) fn take_turn(&self, now: Micros, pause: Micros) -> bool {
        take_turn(&self.again_us, now, pause, Micros::ZERO)
    }

    /// The same for a question that may have to wait for longer than this tells. Turns are given up to `ahead`
    /// early, so that a few may come at once.
    pub(super) fn take_turn_for_more(&self, now: Micros, pause: Micros, ahead: Micros) -> bool {
        take_turn(&self.more_us, now, pause, ahead)
    }

    /// Whether this take has to wait no longer than this tells.
    pub(super) fn tells_all_of(&self, take: &Take) -> bool {
        self.known.tells_all_of(take)
    }
}

fn halves(key: u128) -> [u64; 2] {
    [(key >> u64::BITS) as u64, key as u64]
}

/// Has the next turn at one come no earlier than that at the other.
fn put_off(one_us: &AtomicU64, other_us: &AtomicU64) {
    one_us.fetch_max(other_us.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Takes the turn that is due at this time, or so much ahead of it at most; the next one is `pause` later. `false`
/// when it is too early, or another thread was quicker.
fn take_turn(turn_us: &AtomicU64, now: Micros, pause: Micros, ahead: Micros) -> bool {
    let relaxed = Ordering::Relaxed;
    let at = turn_us.load(relaxed);
    let next = now.max(Micros::new(at)).saturating_add(pause).get();
    at <= now.saturating_add(ahead).get()
        && turn_us.compare_exchange(at, next, relaxed, relaxed).is_ok()
}
