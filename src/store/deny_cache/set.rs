//! `Set`: the few places that a key can have. Readers take no lock; only one writer works at a
//! time.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use super::entry::Entry;
use crate::time::Micros;

/// How often the store is asked about a cost for which the remembered wait may be too short: each
/// time this fraction of the maximum age has passed. The first few questions go at once, as of a
/// client that asks for what it needs.
pub(super) const MORE_ASKED_AFTER: u64 = 4;

/// A key can have several entries, too: one for each cost.
pub(super) const WAYS: usize = 4;

#[derive(Default)]
pub(super) struct Set {
    ways: [Way; WAYS],
}

#[derive(Default)]
struct Way {
    /// Tells most other keys apart without loading the entry. Zero if there is no entry, and for
    /// keys whose tag is zero.
    tag: AtomicU64,
    entry: ArcSwapOption<Entry>,
}

/// An entry that cannot be freed while it is read.
pub(super) struct Pinned(Guard<Option<Arc<Entry>>>);

impl Set {
    /// The entries of a key.
    pub(super) fn of(&self, key: u128) -> impl Iterator<Item = Pinned> {
        self.ways.iter().filter_map(move |way| way.of(key))
    }

    /// Replaces an entry that the new one supersedes; failing that, takes an empty place, or that
    /// of an entry that is over, or that of the oldest.
    pub(super) fn remember(&self, entry: Entry, max_age: Micros) {
        let rank = |way: &&Way| match way.pinned() {
            Some(old) if old.is_superseded_by(&entry) => (0, Micros::ZERO),
            None => (1, Micros::ZERO),
            Some(old) if old.is_over(entry.received, max_age) => (2, Micros::ZERO),
            Some(old) => (3, old.sent),
        };
        let way = self.ways.iter().min_by_key(rank);
        let each = Micros::new(max_age.get() / MORE_ASKED_AFTER);
        entry.take_over_turns(self.of(entry.key()), each);
        entry.put_off_others(self.of(entry.key()));
        if let Some(way) = way {
            way.put(Some(entry));
        }
    }

    pub(super) fn forget(&self, key: u128) {
        for way in &self.ways {
            if way.of(key).is_some() {
                way.put(None);
            }
        }
    }
}

impl Way {
    fn of(&self, key: u128) -> Option<Pinned> {
        if self.tag.load(Ordering::Acquire) != tag_of(key) {
            return None;
        }
        self.pinned().filter(|entry| entry.key() == key)
    }

    fn pinned(&self) -> Option<Pinned> {
        let entry = self.entry.load();
        entry.is_some().then(|| Pinned(entry))
    }

    fn put(&self, entry: Option<Entry>) {
        let tag = entry.as_ref().map_or(0, |entry| tag_of(entry.key()));
        self.entry.store(entry.map(Arc::new));
        self.tag.store(tag, Ordering::Release);
    }
}

/// Some of its bits.
fn tag_of(key: u128) -> u64 {
    (key >> 32) as u64
}

impl Deref for Pinned {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.0.as_deref().expect("only an entry is pinned")
    }
}
