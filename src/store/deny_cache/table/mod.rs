//! `Denials`: the denials that a process remembers, in a table of fixed size that is lossy. A lost
//! entry costs a round trip, and no flood of subjects can make the table grow.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{array, iter};

use super::entry::{Entry, MORE_ASKED_AFTER, Pinned, Set};
use crate::algorithm::{Acquire, Algorithm, LaterVerdict, Reading};
use crate::random::KeyedHash;
use crate::sharded::Count;
use crate::time::{Clock, Micros, SinceStart};

const SHARDS: usize = 64;
const SETS: usize = 256;
const PLACE_BITS: u32 = (SHARDS * SETS).ilog2();

/// While a subject keeps asking, one of its questions is sent to the store after this fraction of the
/// maximum age, so that not all are sent once the entry expires. If that one gets no answer, another is
/// sent after each further fraction.
const ASKED_AGAIN_AFTER: u64 = 2;
const ASKED_ONCE_MORE_AFTER: u64 = 8;

/// How many questions about larger costs may be sent at once. Each counts twice for the policy that it
/// is sent for, when it is sent and when it is answered, and once for every other policy in it.
const MORE_AT_ONCE: u64 = 8;

/// Readers take no lock and write nothing that others read: during an attack all threads ask about
/// one subject.
pub(super) struct Table {
    /// Secret, since a client that could find keys of one set could evict its own denials, and each of
    /// its questions would be sent to the store.
    keyed_hash: KeyedHash,
    shards: Box<[Shard]>,
    pub(super) max_age: Micros,
    hits: Count,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Shard {
    /// For each set, how often something was forgotten because it has changed.
    changes: [AtomicU32; SETS],
    /// Whether there are sets. Sequentially consistent with `changes`.
    is_used: AtomicBool,
    /// Allocated with the first denial, since most servers deny hardly any requests.
    sets: OnceLock<Box<[Set]>>,
    /// Held while remembering or forgetting.
    writing: Mutex<()>,
}

/// The version of a set: the number of its changes when the store was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(u32);

impl Version {
    /// The version after this many more changes.
    pub(super) fn after(self, changes: u32) -> Self {
        Self(self.0.wrapping_add(changes))
    }
}

/// The time of a lookup, and whether the store may be asked instead.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Micros,
    /// Whether the question may be sent to the store although its denial is remembered.
    pub(super) may_ask: bool,
}

/// What is known of a check.
pub(super) enum Recalled {
    Nothing,
    Reading(Reading),
    /// Denied as far as is known, but it is time to ask the store again.
    TimeToAsk,
}

impl Table {
    pub(super) fn new(max_age: Micros) -> Self {
        Self {
            keyed_hash: KeyedHash::new(),
            shards: iter::repeat_with(Shard::default).take(SHARDS).collect(),
            max_age,
            hits: Count::default(),
        }
    }

    /// How many questions were answered.
    pub(super) fn hits(&self) -> u64 {
        self.hits.sum()
    }

    /// Counts an answered question.
    pub(super) fn hit(&self) {
        self.hits.add();
    }

    /// What is known of this check.
    #[inline]
    pub(super) fn recall(
        &self,
        key: u128,
        algorithm: &Algorithm,
        acquire: &Acquire,
        Moment { now, may_ask }: Moment,
    ) -> Recalled {
        let Some((entry, reading)) = self.find(key, algorithm, acquire, now) else {
            return Recalled::Nothing;
        };
        if may_ask && !reading.fits && self.try_take_turn(&entry, acquire, now) {
            let (shard, set) = self.place(key);
            if let Some(sets) = shard.sets.get() {
                entry.put_off_others(sets[set].of(key));
            }
            Recalled::TimeToAsk
        } else {
            Recalled::Reading(reading)
        }
    }

    /// Takes the turn to ask the store, if this acquire may: either to renew the entry, or about a
    /// longer wait. Varying the cost gains no further turns.
    fn try_take_turn(&self, entry: &Entry, acquire: &Acquire, now: Micros) -> bool {
        let again = Micros::new(self.max_age.get() / ASKED_ONCE_MORE_AFTER);
        let more = Micros::new(self.max_age.get() / MORE_ASKED_AFTER);
        let ahead = Micros::new(more.get().saturating_mul(MORE_AT_ONCE));
        if entry.tells_all_of(acquire) {
            entry.try_take_turn(now, again)
        } else {
            entry.try_take_turn_for_more(now, more, ahead)
        }
    }

    /// Takes the turn to ask the store about another check that is not remembered, although this
    /// acquire is denied, if it may.
    pub(super) fn try_take_turn_beside(
        &self,
        key: u128,
        algorithm: &Algorithm,
        acquire: &Acquire,
        now: Micros,
    ) -> bool {
        let pause = Micros::new(self.max_age.get() / ASKED_AGAIN_AFTER);
        self.find(key, algorithm, acquire, now)
            .is_none_or(|(denial, _)| denial.try_take_turn_for_more(now, pause, Micros::ZERO))
    }

    /// The entry that answers this check, and its reading. If none covers this cost, the longest
    /// denial of a smaller one.
    fn find(
        &self,
        key: u128,
        algorithm: &Algorithm,
        acquire: &Acquire,
        now: Micros,
    ) -> Option<(Pinned, Reading)> {
        let (shard, set) = self.place(key);
        let sets = shard.sets.get()?;
        let mut longest: Option<(Pinned, Reading)> = None;
        let entries = sets[set].of(key);
        for entry in entries.filter(|entry| !entry.is_over(now, self.max_age)) {
            let Some(reading) = entry.reading(algorithm, acquire, now) else {
                continue;
            };
            // Usually the first one does.
            if entry.tells_all_of(acquire) {
                return Some((entry, reading));
            }
            if longest
                .as_ref()
                .is_none_or(|(_, other)| other.wait < reading.wait)
            {
                longest = Some((entry, reading));
            }
        }
        longest
    }

    /// The version of a key's set, for a question about it that is about to be sent.
    pub(super) fn version(&self, key: u128) -> Version {
        let (shard, set) = self.place(key);
        Version(shard.changes[set].load(Ordering::SeqCst))
    }

    /// Forgets what is known of a key, and rejects the answers to questions in flight.
    pub(super) fn forget(&self, key: u128) {
        let (shard, set) = self.place(key);
        shard.changes[set].fetch_add(1, Ordering::SeqCst);
        // `remember` sets `is_used` before it reads the changes: either it sees this change, or
        // this load sees its flag.
        if shard.is_used.load(Ordering::SeqCst) {
            let _writing = shard.write();
            if let Some(sets) = shard.sets.get() {
                sets[set].forget(key);
            }
        }
    }

    /// Remembers an answer, unless the key may have changed since it was decided.
    pub(super) fn remember(
        &self,
        key: u128,
        version: Version,
        known: LaterVerdict,
        sent: Micros,
        received: Micros,
    ) {
        let (shard, set) = self.place(key);
        let _writing = shard.write();
        let sets = shard.sets.get_or_init(no_sets);
        shard.is_used.store(true, Ordering::SeqCst);
        if self.version(key) != version {
            return;
        }
        let again = Micros::new(self.max_age.get() / ASKED_AGAIN_AFTER);
        let entry = Entry::new(key, known, sent, received, sent.saturating_add(again));
        sets[set].remember(entry, self.max_age);
    }

    /// The shard of a key, and its set there.
    #[inline]
    fn place(&self, key: u128) -> (&Shard, usize) {
        let place = self.keyed_hash.place(key, PLACE_BITS);
        (&self.shards[place / SETS], place % SETS)
    }
}

fn no_sets() -> Box<[Set]> {
    iter::repeat_with(Set::default).take(SETS).collect()
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            changes: array::from_fn(|_| AtomicU32::new(0)),
            is_used: AtomicBool::new(false),
            sets: OnceLock::new(),
            writing: Mutex::default(),
        }
    }
}

impl Shard {
    fn write(&self) -> MutexGuard<'_, ()> {
        // No step under the lock leaves anything half done.
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a denial is remembered by default.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(1);

/// The denials that a process remembers.
pub(in crate::store) struct Denials {
    pub(super) table: Table,
    clock: Arc<dyn Clock>,
}

impl Denials {
    /// Measures time by the store's clock if that is one for tests, else by its own.
    pub(in crate::store) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        let clock = clock.unwrap_or_else(|| Arc::new(SinceStart::new()));
        Self::empty(clock, DEFAULT_MAX_AGE.into())
    }

    /// An empty copy with another maximum age.
    pub(in crate::store) fn with_max_age(&self, age: Duration) -> Self {
        Self::empty(Arc::clone(&self.clock), age.into())
    }

    /// An empty copy on another clock.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn with_clock(&self, clock: impl Clock) -> Self {
        Self::empty(Arc::new(clock), self.table.max_age)
    }

    fn empty(clock: Arc<dyn Clock>, max_age: Micros) -> Self {
        Self {
            table: Table::new(max_age),
            clock,
        }
    }

    pub(in crate::store) fn hits(&self) -> u64 {
        self.table.hits()
    }

    pub(super) fn now(&self) -> Micros {
        self.clock.now()
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests;
