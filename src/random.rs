//! Random numbers for jitter. Not for secrets: whoever must not guess a number is never shown one.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Each `RandomState` has its own keys, so this needs no crate.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
