//! The table of what is remembered: fixed and lossy. Losing an entry costs a trip, and no flood can
//! make it grow.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{array, iter};

use super::entry::Entry;
use super::set::{Held, MORE_ASKED_AFTER, Set};
use crate::algorithm::{Algorithm, Known, Reading, Take};
use crate::per_thread::Count;
use crate::time::Micros;

const SHARDS: usize = 64;
const SETS: usize = 256;

/// While a subject keeps asking, one of its questions goes to the store each time that this part of
/// the most age has gone by, so that not all of them do when an entry has reached it; and if there
/// was no answer, another one after this part more.
const ASKED_AGAIN_AFTER: u64 = 2;
const ASKED_ONCE_MORE_AFTER: u64 = 8;

/// So many questions about larger costs may come at once. Each counts twice, when it is asked and when it is answered,
/// and so once for every other policy that is asked with it.
const MORE_AT_ONCE: u64 = 8;

/// Whoever is answered from it takes no lock and writes nothing that others read: under an attack all
/// threads ask about one subject.
pub(super) struct Table {
    shards: Box<[Shard]>,
    max_age: Micros,
    hits: Count,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Shard {
    /// Of each set, how often something was forgotten because it has changed.
    changes: [AtomicU32; SETS],
    /// Whether there are sets, in one order with the changes.
    is_used: AtomicBool,
    /// None until there is something to remember: most servers deny hardly anybody.
    sets: OnceLock<Box<[Set]>>,
    /// Held by who remembers or forgets.
    writing: Mutex<()>,
}

/// How many changes a set had seen when the store was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u32);

#[cfg(feature = "redis")]
impl Ticket {
    /// When so many changes are known of since.
    pub(super) fn after(self, changes: u32) -> Self {
        Self(self.0.wrapping_add(changes))
    }
}

/// When memory is asked, and by whom.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Micros,
    pub(super) refresh: Refresh,
}

/// Whether one question is to go to the store now and then about what is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refresh {
    WhenDue,
    /// It was there, or cannot be asked.
    Never,
}

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
            hits: Count::default(),
        }
    }

    pub(super) fn max_age(&self) -> Micros {
        self.max_age
    }

    /// How many questions were answered.
    pub(super) fn hits(&self) -> u64 {
        self.hits.sum()
    }

    /// Notes that a question was answered.
    pub(super) fn hit(&self) {
        self.hits.add();
    }

    /// What is known of this check of a key.
    #[inline]
    pub(super) fn recall(
        &self,
        key: u128,
        algorithm: &Algorithm,
        take: &Take,
        Moment { now, refresh }: Moment,
    ) -> Recalled {
        let Some((entry, reading)) = self.find(key, algorithm, take, now) else {
            return Recalled::Nothing;
        };
        let may_be_due = !reading.fits && refresh == Refresh::WhenDue;
        if may_be_due && self.is_due(&entry, take, now) {
            if let Some(sets) = self.shard(key).sets.get() {
                entry.is_asked_for(sets[set_of(key)].of(key));
            }
            Recalled::TimeToAsk
        } else {
            Recalled::Reading(reading)
        }
    }

    /// Whether it is time to ask the store again about what this entry tells, or about a take that may have to wait
    /// for longer. Whoever chooses another cost each time cannot make it work by that.
    fn is_due(&self, entry: &Entry, take: &Take, now: Micros) -> bool {
        let again = Micros::new(self.max_age.get() / ASKED_ONCE_MORE_AFTER);
        let more = Micros::new(self.max_age.get() / MORE_ASKED_AFTER);
        let ahead = Micros::new(more.get().saturating_mul(MORE_AT_ONCE));
        if entry.tells_all_of(take) {
            entry.is_to_be_asked_again(now, again)
        } else {
            entry.is_more_to_be_asked(now, more, ahead)
        }
    }

    /// Whether it is time to ask the store about what this ban guards, of which nothing is known.
    pub(super) fn is_guarded_to_be_asked(
        &self,
        key: u128,
        penalty: &Algorithm,
        take: &Take,
        now: Micros,
    ) -> bool {
        let wait = Micros::new(self.max_age.get() / ASKED_AGAIN_AFTER);
        self.find(key, penalty, take, now)
            .is_none_or(|(ban, _)| ban.is_more_to_be_asked(now, wait, Micros::ZERO))
    }

    /// The entry that tells of this check, and what it tells: where none tells all, the longest denial of a smaller cost.
    fn find(
        &self,
        key: u128,
        algorithm: &Algorithm,
        take: &Take,
        now: Micros,
    ) -> Option<(Held, Reading)> {
        let sets = self.shard(key).sets.get()?;
        let mut longest: Option<(Held, Reading)> = None;
        let entries = sets[set_of(key)].of(key);
        for entry in entries.filter(|entry| !entry.is_over(now, self.max_age)) {
            let Some(reading) = entry.reading(algorithm, take, now) else {
                continue;
            };
            // Mostly the first one.
            if entry.tells_all_of(take) {
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
            let _writing = shard.write();
            if let Some(sets) = shard.sets.get() {
                sets[set_of(key)].forget(key);
            }
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
        let _writing = shard.write();
        let sets = shard.sets.get_or_init(no_sets);
        shard.is_used.store(true, Ordering::SeqCst);
        if self.ticket(key) != ticket {
            return;
        }
        let again = Micros::new(self.max_age.get() / ASKED_AGAIN_AFTER);
        let entry = Entry::new(key, known, sent, received, sent.saturating_add(again));
        sets[set_of(key)].remember(entry, self.max_age);
    }

    fn shard(&self, key: u128) -> &Shard {
        // The highest bits; a set is found by the lowest.
        &self.shards[(key >> (u128::BITS - SHARDS.ilog2())) as usize]
    }
}

fn set_of(key: u128) -> usize {
    key as usize % SETS
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

#[cfg(all(test, feature = "redis"))]
mod tests;
