//! Random numbers for jitter, and for the order of a table that nobody outside can know. Not for
//! secrets: whoever must not guess a number is never shown one.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Each `RandomState` has its own keys, so this needs no crate.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// Scatters the keys of one table. Anybody can compute their hashes. Without this, a client that
/// chooses its names could place them all where there is room for a few.
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

    /// The scattered hash. Only its highest bits are to be used: in a product the lowest depend on
    /// the lowest bits of the factors alone.
    #[inline]
    pub(crate) fn of(&self, hash: u128) -> u128 {
        hash.wrapping_mul(self.0)
    }

    /// The place of a hash among 2^`bits`.
    #[inline]
    pub(crate) fn place(&self, hash: u128, bits: u32) -> usize {
        (self.of(hash) >> (u128::BITS - bits)) as usize
    }
}
