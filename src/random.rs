//! Random numbers for jitter and for hash tables. Not for secrets.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Each `RandomState` has its own keys, so this needs no crate.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// A keyed hash for the positions in one table. Without it, a client could choose names that all
/// collide, because the hashes of keys are public.
///
/// Multiplication by an odd number makes no two hashes equal, and the highest bits of a product by
/// a random odd number are universal hashes (Dietzfelbinger and others, "A Reliable Randomized
/// Algorithm for the Closest-Pair Problem", 1997).
pub(crate) struct KeyedHash(u128);

impl KeyedHash {
    pub(crate) fn new() -> Self {
        let [high, low] = [random(), random()].map(u128::from);
        Self(high << 64 | low | 1)
    }

    /// The keyed hash. Use only its highest bits: in a product, the lowest bits depend on the
    /// lowest bits of the factors alone.
    #[inline]
    pub(crate) fn of(&self, hash: u128) -> u128 {
        hash.wrapping_mul(self.0)
    }

    /// The position of a hash in a table of 2^`bits`.
    #[inline]
    pub(crate) fn place(&self, hash: u128, bits: u32) -> usize {
        (self.of(hash) >> (u128::BITS - bits)) as usize
    }
}
