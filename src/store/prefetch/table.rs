//! The table of accounts: of fixed size and lossy, like that of the denials. A subject without an
//! account costs a round trip for each question, and no flood of subjects can make the table grow.

use std::collections::HashMap;
use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::account::Account;
use crate::random::KeyedHash;
use crate::store::{Check, Prefetch};

const SHARDS: usize = 64;
const SETS: usize = 16;
/// How many places a key can have within its set.
const WAYS: usize = 4;
const PLACE_BITS: u32 = (SHARDS * SETS).ilog2();

pub(super) struct Table {
    /// Secret, since a client that could find keys of one set could fill it, and each question about a
    /// busy subject there would be sent to the store.
    keyed_hash: KeyedHash,
    shards: Box<[Shard]>,
}

/// On cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Accounts>);

/// The accounts of a shard.
#[derive(Default)]
pub(super) struct Accounts {
    /// Empty until there is an account.
    sets: Box<[Set]>,
    resets: ResetsInFlight,
}

type Set = [Option<Account>; WAYS];

/// The table's entry of a key. Its shard is locked meanwhile, so do not ask a store.
pub(super) struct Entry<'a> {
    accounts: MutexGuard<'a, Accounts>,
    set: usize,
    key: u128,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            keyed_hash: KeyedHash::new(),
            shards: iter::repeat_with(Shard::default).take(SHARDS).collect(),
        }
    }

    pub(super) fn entry(&self, key: u128) -> Entry<'_> {
        let place = self.place(key);
        Entry {
            accounts: self.shards[place / SETS].lock(),
            set: place % SETS,
            key,
        }
    }

    /// The accounts of each shard, which is locked in its turn.
    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Accounts>> {
        self.shards.iter().map(Shard::lock)
    }

    /// The index of a key's set among those of all shards.
    pub(super) fn place(&self, key: u128) -> usize {
        self.keyed_hash.place(key, PLACE_BITS)
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        // Every step under the lock leaves whole accounts behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Account> {
        self.sets.iter_mut().flatten().flatten()
    }
}

impl Entry<'_> {
    pub(super) fn account(&mut self) -> Option<&mut Account> {
        let set = self.accounts.sets.get_mut(self.set)?;
        let mut accounts = set.iter_mut().flatten();
        accounts.find(|account| account.key == self.key)
    }

    /// The account of the key. Opens one if there is none and a place in its set is not in use.
    pub(super) fn account_or_open(
        &mut self,
        check: &Check<'_>,
        prefetch: Prefetch,
    ) -> Option<&mut Account> {
        let sets = &mut self.accounts.sets;
        if sets.is_empty() {
            *sets = iter::repeat_with(|| [const { None }; WAYS])
                .take(SETS)
                .collect();
        }
        let set = sets.get_mut(self.set)?;
        let is_own = |way: &Option<Account>| way.as_ref().is_some_and(|own| own.key == self.key);
        let way = match set.iter().position(is_own) {
            Some(way) => way,
            None => {
                let way = least_used(set)?;
                set[way] = Some(Account::open(self.key, check, prefetch));
                way
            }
        };
        set[way].as_mut()
    }

    /// No batch of this key is taken until [`end_reset`](Self::end_reset).
    pub(super) fn begin_reset(&mut self) {
        self.accounts.resets.begin(self.key);
    }

    pub(super) fn end_reset(&mut self) {
        self.accounts.resets.end(self.key);
    }

    pub(super) fn is_being_reset(&self) -> bool {
        self.accounts.resets.has(self.key)
    }
}

/// A free place, or the place of the account that was asked for longest ago among those not in use.
fn least_used(set: &Set) -> Option<usize> {
    let rank = |account: &Account| (!account.is_in_use()).then(|| Some(account.last_asked()));
    let ranked = set.iter().enumerate().filter_map(|(way, account)| {
        let rank = account.as_ref().map_or(Some(None), rank)?;
        Some((rank, way))
    });
    ranked.min().map(|(_, way)| way)
}

/// The keys with resets or credits in flight. Kept apart from the accounts, since an account may be
/// opened meanwhile, and a subject that is only reset needs none.
#[derive(Default)]
struct ResetsInFlight(HashMap<u128, usize>);

impl ResetsInFlight {
    fn begin(&mut self, key: u128) {
        *self.0.entry(key).or_default() += 1;
    }

    fn end(&mut self, key: u128) {
        let Some(in_flight) = self.0.get_mut(&key) else {
            return;
        };
        *in_flight -= 1;
        if *in_flight == 0 {
            self.0.remove(&key);
            if self.0.is_empty() {
                // Frees the memory after a large number of resets.
                self.0.shrink_to_fit();
            }
        }
    }

    fn has(&self, key: u128) -> bool {
        self.0.contains_key(&key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::key::Subject;

    /// Anybody can find such names.
    #[test]
    fn subjects_whose_hashes_begin_and_end_alike_do_not_share_a_set() {
        let table = Table::new();
        let hashes = (0..64).map(|name| Subject::of_text(&format!("{name}")).to_u128());
        let alike = hashes.map(|hash| hash >> 8 & u128::MAX >> 16 << 8);
        let places: HashSet<_> = alike.map(|key| table.place(key)).collect();
        assert!(places.len() > 64 / WAYS, "{}", places.len());
    }

    /// As documented in docs/prefetch.md.
    #[test]
    fn the_whole_table_takes_no_more_than_is_documented() {
        let each = SETS * size_of::<Set>();
        assert_eq!(SHARDS * SETS * WAYS, 4_096);
        assert!(each <= 40_000, "{each}");
        assert!(SHARDS * (size_of::<Shard>() + each) <= 2_500_000);
    }
}
