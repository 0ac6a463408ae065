//! The embedded store: all counts in this process, in a bounded table that expires on its own.
//!
//! Keys are spread over shards, each a table behind its own lock. No thread works in the
//! background: every so many questions sweep out what is over.

use std::fmt;
use std::sync::Arc;

use self::shards::{SHARDS, Shards};
use self::together::Together;
use super::{Answer, Check, Store};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::time::{Clock, Micros, SystemClock};

mod shard;
mod shards;
mod slot;
mod table;
mod together;

const DEFAULT_CAPACITY: usize = 1_000_000;

/// Below this, chance would fill one shard long before the others.
const LEAST_KEYS_A_SHARD: usize = 16;

/// After so many questions to one shard, a few buckets of another are swept.
const QUESTIONS_A_ROUND: u32 = 64;

/// Counts in this process: nothing to install, no trip, and no allocation for a known key (a
/// [`Key`](crate::Key) itself takes one when its subject is longer than about 100 bytes). Clones
/// share the counts.
///
/// For a service of one process, for tests, and for limits that may be local. Counts are gone when
/// the process ends.
///
/// # What if it is full?
///
/// It holds at most [`capacity`](MemoryStoreBuilder::capacity) keys, one for each policy and
/// subject, one more for each [further rate](crate::Limit::and) of its limit, and one more for the
/// denials of each whom a [`Penalty`](crate::Penalty) counts. A key
/// whose quota is whole again is forgotten by itself. When all keys are still needed, a new one
/// takes the place of one that was not used lately: that subject starts with a fresh quota when it
/// comes back. So a flood of made-up subjects drives out the idle and, as a rule, not those who
/// keep asking.
///
/// A key whose quota is used up is never driven out before its next request would be allowed, nor
/// one of which permits are held before they are given back or lapse; but those that only count, of
/// policies in [shadow](crate::Mode::Shadow), make room for any other. Where nothing but such keys
/// is found, a *new* key gets no answer but
/// [`StoreErrorKind::Full`](crate::StoreErrorKind::Full), and its policy's
/// [`FailureMode`](crate::FailureMode) decides. Where that lets requests pass, the others that judge
/// the request do so all the same; else nothing is taken under any of them, and each decides by its
/// own.
///
/// Which keys are such is judged anew whenever one is asked about, charged or given back to: by what
/// is left then, and by the limit of that moment.
///
/// # Memory
///
/// The table grows with the keys that there are at once, however many come and go, to at most 180
/// bytes for each key of its capacity: 136 MB for the default one. It keeps what it has grown to.
/// Some keys take more beside it:
///
/// - a sliding log 48 bytes, and for each request in it when it was longest 16 to 32, 64 at least;
/// - a sliding window 40, and as much for each slice in use as a log for each request;
/// - a limit of concurrency about 400, and up to 90 for each lease;
/// - a penalty, which is a key of its own, 56, and for each denial 8 to 16, 32 at least.
///
/// ```
/// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy};
///
/// let store = MemoryStore::builder().capacity(100_000).build();
/// let limiter = Limiter::new(store.clone(), [Policy::new("api", Limit::gcra(100, MINUTE))])?;
/// assert!(store.is_empty());
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    clock: Box<dyn Clock>,
    shards: Shards,
}

impl MemoryStore {
    /// A store for a million keys on the system's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// For another capacity, or another clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: Box::new(SystemClock),
            capacity: DEFAULT_CAPACITY,
        }
    }

    /// The keys that it holds, with those that are over and not yet removed. Looks into each shard
    /// in turn.
    pub fn len(&self) -> usize {
        let shards = &self.0.shards;
        (0..SHARDS).map(|home| shards.lock(home).len()).sum()
    }

    /// Whether it holds no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same as [`ask`](Store::ask), for those who know that the answer is there at once.
    pub(super) fn decide(&self, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
        let now = self.0.clock.now();
        match checks {
            [check] => self.ask_one(check, now),
            checks => self.ask_together(checks, now),
        }
    }

    fn ask_one(&self, check: &Check<'_>, now: Micros) -> Result<Decisions, StoreError> {
        let fingerprint = self.0.shards.fingerprint(check);
        let home = Shards::home(fingerprint);
        let mut shard = self.0.shards.lock(home);
        let decision = shard.ask(check, fingerprint, now);
        let count = shard.count();
        drop(shard);
        self.tidy(home, count, now);
        decision.map(Decisions::from)
    }

    // Out of line: most questions have one check.
    #[inline(never)]
    fn ask_together(&self, checks: &[Check<'_>], now: Micros) -> Result<Decisions, StoreError> {
        let mut together = Together::lock(&self.0.shards, checks, now);
        let decisions = together.ask();
        let (home, count) = together.count();
        drop(together);
        self.tidy(home, count, now);
        decisions
    }

    /// Lets the shards share the work of forgetting, so that traffic on a single key is enough to
    /// clear all of them. Called with no lock held, and waits for none.
    fn tidy(&self, home: usize, count: u32, now: Micros) {
        if count.is_multiple_of(QUESTIONS_A_ROUND) {
            // Counted from the own shard, so that shards in step do not all sweep the same one.
            let round = (count / QUESTIONS_A_ROUND) as usize;
            self.0.shards.sweep((home + round) % SHARDS, now);
        }
    }
}

impl Store for MemoryStore {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        Answer::Ready(self.decide(checks))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Builds a [`MemoryStore`] with more than the defaults.
#[must_use]
pub struct MemoryStoreBuilder {
    clock: Box<dyn Clock>,
    capacity: usize,
}

impl MemoryStoreBuilder {
    /// The clock; [`SystemClock`] unless said. Tests give a [`ManualClock`](crate::ManualClock).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// The most keys, one for each policy and subject, and rate; a million unless said. Rounded up to a
    /// multiple of 64, and to 1024 at least.
    ///
    /// A 64th of them is for those keys whose hash begins alike, so that a store can be full for a
    /// key a little before it holds them all.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Builds the store. Memory is taken as keys come.
    pub fn build(self) -> MemoryStore {
        let bound = self.capacity.div_ceil(SHARDS).max(LEAST_KEYS_A_SHARD);
        // A clock that has something to find out does so now, and not during the first request.
        self.clock.now();
        MemoryStore(Arc::new(Shared {
            clock: self.clock,
            shards: Shards::new(bound),
        }))
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreBuilder")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
