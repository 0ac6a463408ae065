//! One part of the keys: a bounded table, and two hands that go round it.
//!
//! The broom removes keys that are over. In a full table the clock's hand evicts keys that were not
//! used lately (the CLOCK algorithm, with up to three chances), but never that of a subject being
//! denied. There are two hands because sweeping with the clock's hand would carry it past keys that
//! are due for eviction.

use std::mem;

use super::slot::{Fingerprint, Slot};
use super::table::{self, Table};
use crate::decision::{Decision, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Check;
use crate::time::Micros;

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
        if decision.outcome == Outcome::Allowed && action.acquires() > 0 {
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
        table::insert(&mut self.slots, slot)
    }

    /// Undoes an [`insert`](Self::insert).
    pub(super) fn remove(&mut self, fingerprint: Fingerprint) {
        let is_it = |slot: &Slot| slot.fingerprint == fingerprint;
        if let Ok(entry) = self.slots.find_entry(fingerprint.hash(), is_it) {
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

#[cfg(test)]
mod tests {
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
}
