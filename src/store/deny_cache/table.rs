//! The table of what is remembered: fixed and lossy. Losing an entry costs a trip, and no flood can
//! make it grow.

use std::array;
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::algorithm::{Algorithm, Known, Reading, Take};
use crate::time::Micros;

const SHARDS: usize = 64;
const SETS: usize = 256;
/// Where a key may stand within its set: there can be several entries for a key, too, each for a
/// cost.
const WAYS: usize = 4;

/// While a subject keeps asking, one of its questions goes to the store each time that this part of
/// the most age has gone by, so that not all of them do when an entry has reached it; and if there
/// was no answer, another one after this part more.
const ASKED_AGAIN_AFTER: u64 = 2;
const ASKED_ONCE_MORE_AFTER: u64 = 8;

pub(super) struct Table {
    shards: Box<[Shard]>,
    max_age: Micros,
}

/// On cache lines of its own. Most servers deny hardly anybody: their questions take no lock.
#[repr(align(128))]
struct Shard {
    /// Of each set, how often something was forgotten because it has changed.
    changes: [AtomicU32; SETS],
    /// Whether there is anything to remember, or ever was.
    is_used: AtomicBool,
    sets: Mutex<Sets>,
}

#[derive(Default)]
struct Sets {
    /// How many questions an entry has answered.
    hits: u64,
    /// None until there is something to remember.
    sets: Box<[Set]>,
}

#[derive(Default)]
struct Set {
    ways: [Option<Entry>; WAYS],
}

struct Entry {
    key: u128,
    known: Known,
    /// When the store was asked: it has decided no earlier.
    sent: Micros,
    /// When its answer was there: it has decided no later.
    received: Micros,
    /// From then on one question goes to the store.
    asked_again: Micros,
}

/// How many changes a set had seen when the store was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// What is known of a check.
pub(super) enum Recalled {
    Nothing,
    Reading(Reading),
    /// It is denied as far as is known, but that has to be seen again.
    TimeToAsk,
}

impl Table {
    pub(super) fn new(max_age: Micros) -> Self {
        Self {
            shards: iter::repeat_with(Shard::default).take(SHARDS).collect(),
            max_age,
        }
    }

    pub(super) fn max_age(&self) -> Micros {
        self.max_age
    }

    /// How many questions were answered.
    pub(super) fn hits(&self) -> u64 {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().hits).sum()
    }

    /// Notes that a question was answered, of which this is a key.
    pub(super) fn hit(&self, key: u128) {
        self.shard(key).lock().hits += 1;
    }

    /// What is known of this check of a key. One that is `alone` is the whole question, which a
    /// denial answers.
    pub(super) fn recall(
        &self,
        key: u128,
        algorithm: &Algorithm,
        take: &Take,
        now: Micros,
        alone: bool,
    ) -> Recalled {
        let shard = self.shard(key);
        if !shard.is_used.load(Ordering::Acquire) {
            return Recalled::Nothing;
        }
        let mut sets = shard.lock();
        let Sets { hits, sets } = &mut *sets;
        let Some(set) = sets.get_mut(set_of(key)) else {
            return Recalled::Nothing;
        };
        let entries = set.ways.iter_mut().flatten();
        let mut own = entries.filter(|entry| entry.key == key && !self.is_over(entry, now));
        let recalled = own.find_map(|entry| {
            let reading = entry.reading(algorithm, take, now)?;
            Some((entry, reading))
        });
        match recalled {
            None => Recalled::Nothing,
            Some((entry, reading)) if !reading.fits && now >= entry.asked_again => {
                let wait = Micros::new(self.max_age.get() / ASKED_ONCE_MORE_AFTER);
                entry.asked_again = now.saturating_add(wait);
                Recalled::TimeToAsk
            }
            Some((_, reading)) => {
                *hits += u64::from(alone && !reading.fits);
                Recalled::Reading(reading)
            }
        }
    }

    /// What the answer to a question that is about to be sent is remembered by.
    pub(super) fn ticket(&self, key: u128) -> Ticket {
        Ticket(self.shard(key).changes[set_of(key)].load(Ordering::SeqCst))
    }

    /// Forgets what is known of a key, and what will be answered to questions on their way.
    pub(super) fn forget(&self, key: u128) {
        let shard = self.shard(key);
        shard.changes[set_of(key)].fetch_add(1, Ordering::SeqCst);
        // Whoever remembers says so before it looks at the changes: either it sees this one, or it is
        // seen here.
        if shard.is_used.load(Ordering::SeqCst) {
            shard.lock().forget(key);
        }
    }

    /// Remembers an answer, unless the key may have changed since it was decided.
    pub(super) fn remember(
        &self,
        key: u128,
        ticket: Ticket,
        known: Known,
        sent: Micros,
        received: Micros,
    ) {
        let shard = self.shard(key);
        let mut sets = shard.lock();
        shard.is_used.store(true, Ordering::SeqCst);
        if self.ticket(key) != ticket {
            return;
        }
        let set = sets.of_first(key);
        let way = set.lowest(|entry| match entry {
            Some(old) if old.key == key && old.known.is_superseded_by(&known) => (0, Micros::ZERO),
            None => (1, Micros::ZERO),
            Some(old) if self.is_over(old, received) => (2, Micros::ZERO),
            Some(old) => (3, old.sent),
        });
        let again = Micros::new(self.max_age.get() / ASKED_AGAIN_AFTER);
        set.ways[way] = Some(Entry {
            key,
            known,
            sent,
            received,
            asked_again: sent.saturating_add(again),
        });
    }

    /// Too old, or from before the clock stepped back.
    fn is_over(&self, entry: &Entry, now: Micros) -> bool {
        now < entry.sent || now.saturating_sub(entry.sent) >= self.max_age
    }

    fn shard(&self, key: u128) -> &Shard {
        // The highest bits; a set is found by the lowest.
        &self.shards[(key >> (u128::BITS - SHARDS.ilog2())) as usize]
    }
}

fn set_of(key: u128) -> usize {
    key as usize % SETS
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            changes: array::from_fn(|_| AtomicU32::new(0)),
            is_used: AtomicBool::new(false),
            sets: Mutex::default(),
        }
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Sets> {
        // Every step under the lock leaves whole entries behind.
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sets {
    /// Makes the sets when there are none.
    fn of_first(&mut self, key: u128) -> &mut Set {
        if self.sets.is_empty() {
            self.sets = iter::repeat_with(Set::default).take(SETS).collect();
        }
        &mut self.sets[set_of(key)]
    }

    fn forget(&mut self, key: u128) {
        if let Some(set) = self.sets.get_mut(set_of(key)) {
            for way in &mut set.ways {
                way.take_if(|entry| entry.key == key);
            }
        }
    }
}

impl Set {
    /// The way that ranks lowest.
    fn lowest<R: Ord>(&self, rank: impl Fn(Option<&Entry>) -> R) -> usize {
        let rank = |way: &usize| rank(self.ways[*way].as_ref());
        (0..WAYS).min_by_key(rank).unwrap_or(0)
    }
}

impl Entry {
    /// What the store would read now, as far as is known.
    ///
    /// It has decided some time between sending and receiving. A denial is known until its wait
    /// after sending is over, so never for longer than it lasts; the wait that is told is that after
    /// receiving, so never one that is too short.
    fn reading(&self, algorithm: &Algorithm, take: &Take, now: Micros) -> Option<Reading> {
        let elapsed = now.saturating_sub(self.received);
        let reading = self.known.later(elapsed, algorithm, take)?;
        let trip = self.received.saturating_sub(self.sent);
        (reading.fits || reading.wait > trip).then_some(reading)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests;
