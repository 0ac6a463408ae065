//! `Entry`: an answer of the store that is remembered. `Set`: the few places that a key can have;
//! readers take no lock, and only one writer works at a time.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::algorithm::{Acquire, Algorithm, LaterVerdict, Reading};
use crate::time::Micros;

pub(super) struct Entry {
    /// In halves: a `u128` would align entries to 16 bytes, which costs a megabyte for all of them.
    key: [u64; 2],
    known: LaterVerdict,
    /// When the store was asked. It decided no earlier.
    pub(super) sent: Micros,
    /// When the answer arrived. The store decided no later.
    pub(super) received: Micros,
    /// When the next question is sent to the store, in microseconds.
    again_us: AtomicU64,
    /// The same for questions whose wait may be longer than this entry's: those with a larger cost,
    /// about the limit behind a ban, and those with another check that never fits.
    more_us: AtomicU64,
}

impl Entry {
    pub(super) fn new(
        key: u128,
        known: LaterVerdict,
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

    /// Takes over the turns that the key's other entries have granted. If some of those entries stay,
    /// the question behind this entry counts as a turn, too. Otherwise a client that varies the cost
    /// would get a turn for each cost.
    pub(super) fn take_over_turns(
        &self,
        others: impl Iterator<Item: Deref<Target = Self>>,
        each: Micros,
    ) {
        let mut has_others = false;
        // A ban may stand beside them.
        for other in others.filter(|other| self.known.is_by_the_rules_of(&other.known)) {
            has_others |= !other.is_superseded_by(self);
            put_off(&self.more_us, &other.more_us);
        }
        if has_others {
            let _ = try_take_turn(&self.more_us, self.received, each, Micros::new(u64::MAX));
        }
    }

    /// Postpones the turns of the key's other entries, since the store is being asked, or was just
    /// asked. If it denies this cost, it denies larger ones too.
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

    /// Whether it is too old, or from before the clock stepped back.
    pub(super) fn is_over(&self, now: Micros, max_age: Micros) -> bool {
        now < self.sent || now.saturating_sub(self.sent) >= max_age
    }

    /// Whether the other entry contains everything that this one does.
    pub(super) fn is_superseded_by(&self, other: &Self) -> bool {
        self.key == other.key && self.known.is_superseded_by(&other.known)
    }

    /// The reading that the store would make now, as far as is known.
    ///
    /// The store decided at some time between sending and receiving. So the denial holds only until
    /// its wait counted from sending is over, and is never kept too long. The wait that is reported
    /// counts from receiving, and is never too short.
    pub(super) fn reading(
        &self,
        algorithm: &Algorithm,
        acquire: &Acquire,
        now: Micros,
    ) -> Option<Reading> {
        let elapsed = now.saturating_sub(self.received);
        let reading = self.known.later(elapsed, algorithm, acquire)?;
        let trip = self.received.saturating_sub(self.sent);
        (reading.fits || reading.wait > trip).then_some(reading)
    }

    /// Takes the turn to go to the store, if it is this question's. The next turn is `pause` later.
    pub(super) fn try_take_turn(&self, now: Micros, pause: Micros) -> bool {
        try_take_turn(&self.again_us, now, pause, Micros::ZERO)
    }

    /// The same for a question whose wait may be longer than this entry's. Turns are granted up to
    /// `ahead` early, so that a few questions may be sent at once.
    pub(super) fn try_take_turn_for_more(&self, now: Micros, pause: Micros, ahead: Micros) -> bool {
        try_take_turn(&self.more_us, now, pause, ahead)
    }

    /// Whether this acquire waits no longer than the entry says.
    pub(super) fn tells_all_of(&self, acquire: &Acquire) -> bool {
        self.known.tells_all_of(acquire)
    }
}

fn halves(key: u128) -> [u64; 2] {
    [(key >> u64::BITS) as u64, key as u64]
}

/// Postpones the next turn of the first until at least that of the second.
fn put_off(one_us: &AtomicU64, other_us: &AtomicU64) {
    one_us.fetch_max(other_us.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Takes the turn that is due now or at most `ahead` from now. The next one is `pause` later.
/// Returns `false` if it is too early or another thread was faster.
fn try_take_turn(turn_us: &AtomicU64, now: Micros, pause: Micros, ahead: Micros) -> bool {
    let relaxed = Ordering::Relaxed;
    let at = turn_us.load(relaxed);
    let next = now.max(Micros::new(at)).saturating_add(pause).get();
    at <= now.saturating_add(ahead).get()
        && turn_us.compare_exchange(at, next, relaxed, relaxed).is_ok()
}

/// The store is asked about a cost whose remembered wait may be too short once in this fraction of the
/// maximum age. The first few questions are sent at once, for clients with a few different costs.
pub(super) const MORE_ASKED_AFTER: u64 = 4;

/// A key can have several entries, too: one for each cost.
pub(super) const WAYS: usize = 4;

#[derive(Default)]
pub(super) struct Set {
    ways: [Way; WAYS],
}

#[derive(Default)]
struct Way {
    /// Tells most other keys apart without loading the entry. Zero if there is no entry, and for
    /// keys whose tag is zero.
    tag: AtomicU64,
    entry: ArcSwapOption<Entry>,
}

/// An entry that cannot be freed while it is read.
pub(super) struct Pinned(Guard<Option<Arc<Entry>>>);

impl Set {
    /// The entries of a key.
    pub(super) fn of(&self, key: u128) -> impl Iterator<Item = Pinned> {
        self.ways.iter().filter_map(move |way| way.of(key))
    }

    /// Replaces an entry that the new one supersedes; failing that, takes an empty place, or that
    /// of an entry that is over, or that of the oldest.
    pub(super) fn remember(&self, entry: Entry, max_age: Micros) {
        let rank = |way: &&Way| match way.pinned() {
            Some(old) if old.is_superseded_by(&entry) => (0, Micros::ZERO),
            None => (1, Micros::ZERO),
            Some(old) if old.is_over(entry.received, max_age) => (2, Micros::ZERO),
            Some(old) => (3, old.sent),
        };
        let way = self.ways.iter().min_by_key(rank);
        let each = Micros::new(max_age.get() / MORE_ASKED_AFTER);
        entry.take_over_turns(self.of(entry.key()), each);
        entry.put_off_others(self.of(entry.key()));
        if let Some(way) = way {
            way.put(Some(entry));
        }
    }

    pub(super) fn forget(&self, key: u128) {
        for way in &self.ways {
            if way.of(key).is_some() {
                way.put(None);
            }
        }
    }
}

impl Way {
    fn of(&self, key: u128) -> Option<Pinned> {
        if self.tag.load(Ordering::Acquire) != tag_of(key) {
            return None;
        }
        self.pinned().filter(|entry| entry.key() == key)
    }

    fn pinned(&self) -> Option<Pinned> {
        let entry = self.entry.load();
        entry.is_some().then(|| Pinned(entry))
    }

    fn put(&self, entry: Option<Entry>) {
        let tag = entry.as_ref().map_or(0, |entry| tag_of(entry.key()));
        self.entry.store(entry.map(Arc::new));
        self.tag.store(tag, Ordering::Release);
    }
}

/// Some of its bits.
fn tag_of(key: u128) -> u64 {
    (key >> 32) as u64
}

impl Deref for Pinned {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.0.as_deref().expect("only an entry is pinned")
    }
}
