//! All shards, and which shard a key is in.

use std::iter;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shard::Shard;
use super::slot::Fingerprint;
use crate::store::Check;
use crate::store::keyed_hash::KeyedHash;
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
        let shard = || Aligned(Mutex::new(Shard::new(bound)));
        Self {
            keyed_hash: KeyedHash::new(),
            shards: iter::repeat_with(shard).take(SHARDS).collect(),
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
