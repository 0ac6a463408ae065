//! `KeyHasher`: hashes keys, with a cache for each thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Key, Secret, Subject};

/// The number of cached hashes: 64 KB for each thread.
const PLACES: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 9;

/// The longest key that is cached. An address takes at most 25 bytes; a header takes 18 bytes plus
/// its name and value.
const LONGEST: usize = 103;

thread_local! {
    static RECENT: RefCell<Vec<Place>> = RefCell::new(vec![Place::EMPTY; PLACES]);
}

/// Hashes keys, and caches recent hashes for each thread: hashing every time would be a third of an
/// in-memory decision.
pub(crate) struct KeyHasher {
    secret: Option<Secret>,
    /// Identifies the limiter's own entries: other limiters may have other secrets.
    number: u64,
}

/// A cache entry: the hash of one key.
#[derive(Clone, Copy)]
#[repr(align(128))]
struct Place {
    subject: Subject,
    number: u64,
    /// Zero if the entry is empty: no key has this length.
    length: u8,
    encoded: [u8; LONGEST],
}

impl KeyHasher {
    pub(crate) fn new(secret: Option<Secret>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            secret,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) fn of(&self, key: &Key) -> Subject {
        let hash = || key.subject(self.secret.as_ref());
        let encoded = key.encoded();
        if encoded.len() > LONGEST {
            return hash();
        }
        let recent = RECENT.try_with(|recent| {
            let place = &mut recent.borrow_mut()[place_of(encoded)];
            if !place.is_of(self.number, encoded) {
                place.put(self.number, encoded, hash());
            }
            place.subject
        });
        // A thread that is ending has no cache any more.
        recent.unwrap_or_else(|_| hash())
    }
}

impl Place {
    const EMPTY: Self = Self {
        subject: Subject::ZERO,
        number: 0,
        length: 0,
        encoded: [0; LONGEST],
    };

    fn is_of(&self, number: u64, encoded: &[u8]) -> bool {
        self.number == number
            && usize::from(self.length) == encoded.len()
            && self.encoded[..encoded.len()] == *encoded
    }

    fn put(&mut self, number: u64, encoded: &[u8], subject: Subject) {
        *self = Self {
            subject,
            number,
            length: encoded.len() as u8,
            ..Self::EMPTY
        };
        self.encoded[..encoded.len()].copy_from_slice(encoded);
    }
}

/// The entry of a key. Fast rather than even: keys that collide are only hashed each time.
fn place_of(encoded: &[u8]) -> usize {
    // The fraction of the golden ratio, as in Knuth's multiplicative hashing.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, _) = encoded.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    // The last eight bytes, which overlap those before (no key is shorter). The last byte, in which
    // keys differ most, is lowest: a product carries upwards only.
    let last = encoded.last_chunk().map(|word| u64::from_be_bytes(*word));
    let hash = words.chain(last).fold(0_u64, |hash, word| {
        (hash.rotate_left(5) ^ word).wrapping_mul(SPREAD)
    });
    (hash >> (u64::BITS - PLACE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_hash_for_each_limiter() {
        let secrets = [None, Some(&b"secret"[..]), Some(&b"another"[..])];
        let limiters = secrets.map(|secret| {
            let secret = || secret.map(Secret::new);
            (KeyHasher::new(secret()), secret())
        });
        // More keys than places, so that they evict each other; some are too long to cache.
        let keys = 3 * PLACES as u64;
        for number in (0..keys).chain(0..100) {
            let text = "x".repeat(number as usize % 50) + &number.to_string();
            for key in [Key::from(number), Key::from(text)] {
                // Twice each, alternating between the limiters.
                for (subjects, secret) in limiters.iter().chain(&limiters) {
                    let subject = key.subject(secret.as_ref());
                    assert!(subjects.of(&key) == subject && subjects.of(&key) == subject);
                }
            }
        }
    }

    #[test]
    fn keys_that_differ_in_the_place_of_one_byte_rarely_share_a_place() {
        let places = |key: fn(u64) -> Key| {
            let keys = (0..500).map(|number| place_of(key(number).encoded()));
            keys.collect::<std::collections::HashSet<_>>().len()
        };
        assert!(places(Key::from) > 300);
        assert!(places(|number| Key::from(number.to_string())) > 300);
        let address = |number| Key::address(std::net::Ipv4Addr::from_bits(number as u32).into());
        assert!(places(address) > 300);
    }
}
