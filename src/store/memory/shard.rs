//! All shards, and one of them: a bounded table, and two hands that go round it.
//!
//! The broom removes keys that are over. In a full table the clock's hand evicts keys that were not
//! used lately (the CLOCK algorithm, with up to three chances), but never that of a subject being
//! denied. There are two hands because sweeping with the clock's hand would carry it past keys that
//! are due for eviction.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{iter, mem};

use hashbrown::HashTable;

use super::slot::{Fingerprint, Slot};
use crate::decision::{Decision, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::random::KeyedHash;
use crate::store::Check;
use crate::time::Micros;

/// Enough that two threads rarely want the same shard.
pub(super) const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 6;

/// How many buckets are swept at a time.
const STEPS_A_ROUND: usize = 32;

pub(super) struct Shards {
    /// If keys could be placed in one shard, a client could fill it, and have a subject there no
    /// longer counted.
    keyed_hash: KeyedHash,
    shards: Box<[Aligned]>,
}

/// On cache lines of its own, a pair because some processors fetch pairs: taking one lock must not
/// slow down its neighbours.
#[repr(align(128))]
struct Aligned(Mutex<Shard>);

impl Shards {
    /// Shards of at most `bound` keys each.
    pub(super) fn new(bound: usize) -> Self {
        let shards = iter::repeat_with(|| Aligned(Mutex::new(Shard::new(bound))));
        Self {
            keyed_hash: KeyedHash::new(),
            shards: shards.take(SHARDS).collect(),
        }
    }

    /// The number by which a check's key is found.
    pub(super) fn fingerprint(&self, check: &Check<'_>) -> Fingerprint {
        Fingerprint::of(check, &self.keyed_hash)
    }

    /// The index of a key's shard.
    pub(super) fn home(fingerprint: Fingerprint) -> usize {
        fingerprint.shard(SHARD_BITS)
    }

    pub(super) fn lock(&self, home: usize) -> MutexGuard<'_, Shard> {
        // Every step under the lock leaves whole slots behind, so another thread's panic spoils
        // nothing here.
        let lock = self.shards[home].0.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves a shard's broom on, unless the shard is locked.
    pub(super) fn sweep(&self, home: usize, now: Micros) {
        if let Ok(mut shard) = self.shards[home].0.try_lock() {
            shard.sweep(STEPS_A_ROUND, now, &[]);
        }
    }
}

/// How many buckets are swept when a key enters. While keys enter a table, it is rarely less than
/// two fifths full, so the broom sees more keys than enter.
const STEPS_FOR_EACH_NEW: usize = 4;

/// How many buckets are searched at most for a key to evict. This many in a row are denied subjects
/// only if practically all are.
const STEPS_TO_EVICT: usize = 4_096;

pub(super) struct Shard {
    slots: Table,
    /// The maximum number of keys.
    bound: usize,
    broom: Hand,
    clock: Hand,
    /// Until then every key that the clock's hand saw is denied, so it need not search again,
    /// unless a key may be evicted sooner than was noted.
    full_until: Micros,
    /// The number of questions so far.
    asked: u32,
}

impl Shard {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            slots: Table::new(),
            bound,
            broom: Hand(0),
            clock: Hand(0),
            full_until: Micros::ZERO,
            asked: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Counts a question, and returns the count.
    pub(super) fn count(&mut self) -> u32 {
        self.asked = self.asked.wrapping_add(1);
        self.asked
    }

    #[inline]
    pub(super) fn find(&mut self, fingerprint: Fingerprint) -> Option<&mut Slot> {
        self.slots
            .find_mut(fingerprint.hash(), |slot| slot.fingerprint == fingerprint)
    }

    /// Decides the only check of a question, and carries it out if it fits.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    #[inline]
    pub(super) fn ask(
        &mut self,
        check: &Check<'_>,
        fingerprint: Fingerprint,
        now: Micros,
    ) -> Result<Decision, StoreError> {
        if let Some(slot) = self.find(fingerprint) {
            let decision = slot.ask(check, now);
            if slot.note(check, &decision, now) {
                self.full_until = Micros::ZERO;
            }
            return Ok(decision);
        }
        self.ask_untouched(check, fingerprint, now)
    }

    // Out of line: most questions are about known keys.
    #[inline(never)]
    fn ask_untouched(
        &mut self,
        check: &Check<'_>,
        fingerprint: Fingerprint,
        now: Micros,
    ) -> Result<Decision, StoreError> {
        let (algorithm, action) = (&check.algorithm, &check.action);
        let mut slot = Slot::new(fingerprint, algorithm.untouched());
        let decision = algorithm.ask(&mut slot.state, now, action);
        if decision.outcome == Outcome::Allowed && action.leaves_state() {
            slot.note(check, &decision, now);
            self.insert(slot, now, &[])?;
        }
        Ok(decision)
    }

    /// Notes what was decided about a key, if it is in the table.
    pub(super) fn note(
        &mut self,
        fingerprint: Fingerprint,
        check: &Check<'_>,
        decision: &Decision,
        now: Micros,
    ) {
        if let Some(slot) = self.find(fingerprint)
            && slot.note(check, decision, now)
        {
            self.full_until = Micros::ZERO;
        }
    }

    /// Inserts a key that is not in the table. Keys in `keep` are not removed for it.
    ///
    /// # Errors
    ///
    /// [`StoreErrorKind::Full`] if there is no room and every key searched is that of a denied
    /// subject.
    pub(super) fn insert(
        &mut self,
        slot: Slot,
        now: Micros,
        keep: &[Fingerprint],
    ) -> Result<(), StoreError> {
        self.sweep(STEPS_FOR_EACH_NEW, now, keep);
        if self.slots.len() >= self.bound {
            self.evict(now, keep)?;
        }
        insert(&mut self.slots, slot)
    }

    /// Undoes an [`insert`](Self::insert).
    pub(super) fn remove(&mut self, fingerprint: Fingerprint) {
        let hash = fingerprint.hash();
        let entry = (self.slots).find_entry(hash, |slot| slot.fingerprint == fingerprint);
        if let Ok(entry) = entry {
            entry.remove();
        }
    }

    /// Moves the broom over `steps` buckets, and removes keys that are over and not in `keep`.
    pub(super) fn sweep(&mut self, steps: usize, now: Micros, keep: &[Fingerprint]) {
        for _ in 0..steps.min(self.slots.num_buckets()) {
            let bucket = self.broom.step(&self.slots);
            if let Some(slot) = self.slots.get_bucket(bucket)
                && slot.is_over(now)
                && !keep.contains(&slot.fingerprint)
            {
                self.clear(bucket);
            }
        }
    }

    fn evict(&mut self, now: Micros, keep: &[Fingerprint]) -> Result<(), StoreError> {
        if now < self.full_until {
            return Err(StoreError::new(StoreErrorKind::Full));
        }
        let mut coldest: Option<(u8, usize)> = None;
        let mut denied_until = Micros::new(u64::MAX);
        for _ in 0..STEPS_TO_EVICT.min(self.slots.num_buckets()) {
            let bucket = self.clock.step(&self.slots);
            let Some(slot) = self.slots.get_bucket_mut(bucket) else {
                continue;
            };
            if keep.contains(&slot.fingerprint) {
                denied_until = now;
            } else if slot.is_over(now) {
                self.clear(bucket);
                return Ok(());
            } else if let Some(until) = slot.kept_until(now) {
                denied_until = denied_until.min(until);
            } else {
                let chances = slot.take_chance();
                if coldest.is_none_or(|(least, _)| chances < least) {
                    coldest = Some((chances, bucket));
                }
                if chances == 0 {
                    break;
                }
            }
        }
        let Some((_, bucket)) = coldest else {
            self.full_until = denied_until;
            return Err(StoreError::new(StoreErrorKind::Full));
        };
        self.clear(bucket);
        Ok(())
    }

    fn clear(&mut self, bucket: usize) {
        if let Ok(entry) = self.slots.get_bucket_entry(bucket) {
            entry.remove();
        }
    }
}

/// The bucket to look at next.
struct Hand(usize);

impl Hand {
    fn step(&mut self, slots: &Table) -> usize {
        let next = self.0 + 1;
        let next = if next < slots.num_buckets() { next } else { 0 };
        mem::replace(&mut self.0, next)
    }
}

/// A shard's keys.
///
/// A removal may leave a tombstone that occupies a bucket until all keys are rehashed. The library
/// rehashes in place only if the table is less than half full, and otherwise doubles it, so memory
/// would depend on how long keys have come and gone. Here it depends on how many there are.
type Table = HashTable<Slot>;

/// Inserts a key that is not in the table.
///
/// # Errors
///
/// [`StoreErrorKind::Full`] if the system has no memory for it.
fn insert(table: &mut Table, slot: Slot) -> Result<(), StoreError> {
    make_room(table)?;
    place(table, slot);
    Ok(())
}

/// Makes sure of a bucket for one more key.
fn make_room(table: &mut Table) -> Result<(), StoreError> {
    let left = table.capacity() - table.len();
    // The library would fill seven of eight buckets. The room between three quarters and that is
    // left to tombstones, so it takes many removals to use it up.
    if table.len() >= table.num_buckets() / 4 * 3 {
        table.try_reserve(left + 1, hash).map_err(full)
    } else if left == 0 {
        renew(table)
    } else {
        Ok(())
    }
}

/// Rehashes all keys in place. If they were moved to another table, the allocator might keep the
/// memory of this one without using it.
fn renew(table: &mut Table) -> Result<(), StoreError> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(table.len()).map_err(full)?;
    slots.extend(table.drain());
    for slot in slots {
        place(table, slot);
    }
    Ok(())
}

fn place(table: &mut Table, slot: Slot) {
    table.insert_unique(hash(&slot), slot, hash);
}

fn hash(slot: &Slot) -> u64 {
    slot.fingerprint.hash()
}

/// The reason is dropped: it says no more than the kind does.
fn full<E>(_reason: E) -> StoreError {
    StoreError::new(StoreErrorKind::Full)
}

#[cfg(test)]
mod tests {
    use hashbrown::hash_table::OccupiedEntry;

    use super::*;
    use crate::store::memory::slot::tests::{NOW, slot};

    #[test]
    fn a_key_of_the_same_question_is_not_removed_for_another() {
        let mut shard = Shard::new(1);
        let (first, second) = (slot(1), slot(2));
        let names = [first.fingerprint, second.fingerprint];
        shard.insert(first, NOW, &names).unwrap();
        let error = shard.insert(second, NOW, &names).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full);
        assert!(shard.find(names[0]).is_some());

        shard.insert(slot(2), NOW, &[]).unwrap();
        assert!(shard.find(names[0]).is_none());
        assert!(shard.find(names[1]).is_some());
    }

    fn find(table: &mut Table, key: u64) -> Option<OccupiedEntry<'_, Slot>> {
        let Slot { fingerprint, .. } = slot(key);
        let is_it = |slot: &Slot| slot.fingerprint == fingerprint;
        table.find_entry(fingerprint.hash(), is_it).ok()
    }

    /// Over one doubling, so that the table is once as full and once as empty as it gets.
    #[test]
    fn the_table_grows_with_the_keys_held_not_with_those_passed() {
        for keys in (700..=1_400).step_by(140) {
            let mut table = Table::new();
            for key in 0..keys {
                insert(&mut table, slot(key)).unwrap();
            }
            let bytes = table.allocation_size();
            assert!(bytes as u64 <= 180 * keys, "{keys} keys take {bytes} bytes");
            for key in keys..8_000 {
                find(&mut table, key - keys).unwrap().remove();
                insert(&mut table, slot(key)).unwrap();
                assert_eq!(table.allocation_size(), bytes, "{keys} keys, after {key}");
            }
        }
    }

    #[test]
    fn a_worn_table_is_renewed_in_its_size_and_loses_nothing() {
        const KEYS: u64 = 96 - 1;
        let mut table = Table::with_capacity(112);
        assert_eq!(table.num_buckets(), 128);
        let mut next = 0;
        while table.len() < table.capacity() {
            if next >= KEYS {
                find(&mut table, next - KEYS).unwrap().remove();
            }
            place(&mut table, slot(next));
            next += 1;
        }
        assert!(table.len() as u64 <= KEYS);
        make_room(&mut table).unwrap();
        assert_eq!((table.num_buckets(), table.capacity()), (128, 112));
        assert!((next - KEYS..next).all(|key| find(&mut table, key).is_some()));
        assert_eq!(table.len() as u64, KEYS);
    }
}
