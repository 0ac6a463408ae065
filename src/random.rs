//! Numbers at random, to scatter what would otherwise come together. They keep no secret: who must not guess
//! one is never shown it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Each `RandomState` has keys of its own, so that this takes no crate.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
