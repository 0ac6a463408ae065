//! `KeyedHash`: the order in which a table has its keys, which nobody outside can know.

use crate::random::random;

/// Scatters the keys of one table. Anybody can compute their hashes. Without this, a client that
/// chooses its names could place them all where there is room for a few.
///
/// Multiplication by an odd number makes no two hashes equal, and the highest bits of a product by
/// a random odd number are universal hashes (Dietzfelbinger and others, "A Reliable Randomized
/// Algorithm for the Closest-Pair Problem", 1997).
pub(super) struct KeyedHash(u128);

impl KeyedHash {
    pub(super) fn new() -> Self {
        let [high, low] = [random(), random()].map(u128::from);
        Self(high << 64 | low | 1)
    }

    /// The scattered hash. Only its highest bits are to be used: in a product the lowest depend on
    /// the lowest bits of the factors alone.
    #[inline]
    pub(super) fn of(&self, hash: u128) -> u128 {
        hash.wrapping_mul(self.0)
    }

    /// The place of a hash among 2^`bits`.
    #[inline]
    pub(super) fn place(&self, hash: u128, bits: u32) -> usize {
        (self.of(hash) >> (u128::BITS - bits)) as usize
    }
}
