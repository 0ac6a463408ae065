//! Tables by fingerprint, which is uniformly distributed and so not hashed again.

use std::collections::HashMap;
#[cfg(feature = "redis")]
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};

pub(super) type FingerprintMap<V> = HashMap<u128, V, ByFingerprint>;
#[cfg(feature = "redis")]
pub(super) type FingerprintSet = HashSet<u128, ByFingerprint>;

/// Uses a fingerprint as its own hash.
#[derive(Clone, Copy, Default)]
pub(super) struct ByFingerprint;

#[derive(Default)]
pub(super) struct Half(u64);

impl BuildHasher for ByFingerprint {
    type Hasher = Half;

    fn build_hasher(&self) -> Half {
        Half::default()
    }
}

impl Hasher for Half {
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
