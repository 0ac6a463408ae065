//! The table of accounts: of fixed size and lossy, like that of the denials. A subject without an
//! account costs a round trip for each question, and no flood of subjects can make the table grow.

use std::collections::HashMap;
use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::account::Account;
use crate::store::scatter::Scatter;

const SHARDS: usize = 64;
const SETS: usize = 16;
/// How many places a key can have within its set.
const WAYS: usize = 4;
const PLACE_BITS: u32 = (SHARDS * SETS).ilog2();

pub(super) struct Table {
    /// If keys could be placed in one set, a client could fill it, and have each question about a
    /// busy subject there go to the store.
    scatter: Scatter,
    shards: Box<[Shard]>,
}

/// On cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// `None` until there is an account.
    sets: Box<[Set]>,
    changing: Changing,
}

type Set = [Option<Account>; WAYS];

impl Table {
    pub(super) fn new() -> Self {
        Self {
            scatter: Scatter::new(),
            shards: iter::repeat_with(Shard::default).take(SHARDS).collect(),
        }
    }

    /// Applies `work` to the account of a key, if there is one.
    pub(super) fn find<T>(&self, key: u128, work: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let (mut kept, set) = self.lock(key);
        kept.find(set, key).map(work)
    }

    /// Applies `work` to the account of a key. Opens one if there is none and a place in its set is
    /// not in use. `open` is told whether a change of the key is in flight.
    pub(super) fn find_or_open<T>(
        &self,
        key: u128,
        open: impl FnOnce(bool) -> Account,
        work: impl FnOnce(&mut Account) -> T,
    ) -> Option<T> {
        let (mut kept, set) = self.lock(key);
        let Kept { sets, changing } = &mut *kept;
        if sets.is_empty() {
            *sets = iter::repeat_with(|| [const { None }; WAYS])
                .take(SETS)
                .collect();
        }
        let set = sets.get_mut(set)?;
        let is_own = |way: &Option<Account>| way.as_ref().is_some_and(|own| own.key == key);
        let way = match set.iter().position(is_own) {
            Some(way) => way,
            None => {
                let way = least_used(set)?;
                set[way] = Some(open(changing.has(key)));
                way
            }
        };
        set[way].as_mut().map(work)
    }

    /// Applies `work` to the account of a key, if there is one. Until the change ends, nothing is
    /// taken in advance of this key.
    pub(super) fn begin_change<T>(
        &self,
        key: u128,
        work: impl FnOnce(&mut Account) -> T,
    ) -> Option<T> {
        let (mut kept, set) = self.lock(key);
        kept.changing.begin(key);
        let account = kept.find(set, key)?;
        account.is_changing = true;
        Some(work(account))
    }

    /// Ends a change.
    pub(super) fn end_change(&self, key: u128) {
        let (mut kept, set) = self.lock(key);
        if kept.changing.end(key)
            && let Some(account) = kept.find(set, key)
        {
            account.is_changing = false;
        }
    }

    /// Applies `work` to each account.
    pub(super) fn each(&self, mut work: impl FnMut(&mut Account)) {
        for shard in &self.shards {
            let mut kept = shard.lock();
            kept.sets.iter_mut().flatten().flatten().for_each(&mut work);
        }
    }

    /// A key's shard, locked, and the index of the key's set there.
    fn lock(&self, key: u128) -> (MutexGuard<'_, Kept>, usize) {
        let place = self.place(key);
        (self.shards[place / SETS].lock(), place % SETS)
    }

    /// The index of a key's set among those of all shards.
    pub(super) fn place(&self, key: u128) -> usize {
        self.scatter.place(key, PLACE_BITS)
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Every step under the lock leaves whole accounts behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn find(&mut self, set: usize, key: u128) -> Option<&mut Account> {
        let set = self.sets.get_mut(set)?;
        let mut accounts = set.iter_mut().flatten();
        accounts.find(|account| account.key == key)
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

/// The subjects with resets or credits in flight. Kept apart from the accounts, since an account may be opened while a change is in flight. A
/// subject that is only changed needs no account.
#[derive(Default)]
pub(super) struct Changing(HashMap<u128, usize>);

impl Changing {
    pub(super) fn begin(&mut self, key: u128) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Ends a change. Returns whether it was the last one of its subject.
    pub(super) fn end(&mut self, key: u128) -> bool {
        let Some(on_their_way) = self.0.get_mut(&key) else {
            return true;
        };
        *on_their_way -= 1;
        let is_last = *on_their_way == 0;
        if is_last {
            self.0.remove(&key);
            if self.0.is_empty() {
                // Frees the memory after a large number of changes.
                self.0.shrink_to_fit();
            }
        }
        is_last
    }

    pub(super) fn has(&self, key: u128) -> bool {
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

    #[test]
    fn the_whole_table_takes_no_more_than_is_documented() {
        let (page, each) = (
            include_str!("../../../docs/quota-leases.md"),
            SETS * size_of::<Set>(),
        );
        assert!(page.contains("At most 4096 subjects, those asked for last, in 2.5 MB; it is taken in pieces of 40 KB."));
        assert_eq!(SHARDS * SETS * WAYS, 4_096);
        assert!(each <= 40_000, "{each}");
        assert!(SHARDS * (size_of::<Shard>() + each) <= 2_500_000);
    }
}
