//! A shard's table: how it grows, and how it is rehashed after many removals.
//!
//! A removal may leave a tombstone that occupies a bucket until all keys are rehashed. The library
//! rehashes in place only if the table is less than half full, and otherwise doubles it, so memory
//! would depend on how long keys have come and gone. Here it depends on how many there are.

use hashbrown::HashTable;

use super::slot::Slot;
use crate::error::{StoreError, StoreErrorKind};

pub(super) type Table = HashTable<Slot>;

/// Inserts a key that is not in the table.
///
/// # Errors
///
/// [`StoreErrorKind::Full`] if the system has no memory for it.
pub(super) fn insert(table: &mut Table, slot: Slot) -> Result<(), StoreError> {
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
    use crate::store::memory::slot::tests::slot;

    fn find(table: &mut Table, key: u64) -> Option<OccupiedEntry<'_, Slot>> {
        let Slot { fingerprint, .. } = slot(key);
        let is_it = |slot: &Slot| slot.fingerprint == fingerprint;
        table.find_entry(fingerprint.hash(), is_it).ok()
    }

    /// Over one doubling, so that the table is once as full and once as empty as it gets.
    #[test]
    fn the_table_grows_with_the_keys_it_holds_at_once_and_not_with_those_that_passed() {
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
