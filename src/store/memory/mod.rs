//! The embedded store: all counts are in this process, in a bounded table that expires by itself.
//!
//! Keys are spread over shards, each a table behind its own lock. There is no background thread:
//! every few questions sweep out keys that are over.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use self::shard::{SHARDS, Shards};
use self::together::Together;
use super::{Answer, Check, Store};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::time::{Clock, Micros, SystemClock};

mod shard;
mod slot;
mod together;

const DEFAULT_CAPACITY: usize = 1_000_000;

/// With fewer keys, chance would fill one shard long before the others.
const LEAST_KEYS_A_SHARD: usize = 16;

/// After this many questions to a shard, a few buckets of another are swept.
const QUESTIONS_A_ROUND: u32 = 64;

/// Counts permits in the memory of this process.
///
/// It needs no server and no round trip. A decision about a known key allocates nothing, except that a
/// [`Key`](crate::Key) allocates for a subject of more than about 100 bytes. Clones share the counts,
/// which are lost when the process ends. Use it for services with one process, for tests, and for
/// limits for each process.
///
/// # What if it is full?
///
/// The store holds at most [`capacity`](MemoryStoreBuilder::capacity) keys: one for each policy and
/// subject, one for each [further rate](crate::Limit::and), and one for each subject whose denials a
/// [`Penalty`](crate::Penalty) counts. A key expires once its full quota is available again. If the
/// table is full, a new key replaces one that was not used lately. The evicted subject starts with a
/// full quota when it comes back. So a flood of made-up subjects mostly evicts idle subjects.
///
/// Some keys are never evicted: a key whose quota is used up, until its next request would be allowed,
/// and a key with permits in use, until they are given back or lapse. Keys of policies in
/// [shadow](crate::Mode::Shadow) can always be evicted. If no key can be evicted, a *new* key gets the
/// error [`StoreErrorKind::Full`](crate::StoreErrorKind::Full), and its policy's
/// [`FailureMode`](crate::FailureMode) decides. If that mode allows the request, the other policies
/// still decide it. Otherwise no policy takes anything, and each decides by its failure mode.
///
/// Each question, charge and refund of a key decides again whether it can be evicted, by its usage and
/// its limit at that time.
///
/// # Memory
///
/// The table grows with the number of simultaneous keys, to at most 180 bytes for each key of the
/// capacity: 136 MB by default. It does not shrink. Some keys take additional bytes:
///
/// - a sliding log 48, and 16 to 32 for each request at its longest, at least 64;
/// - a sliding window 40, and 16 to 32 for each slice in use, at least 64;
/// - a concurrency limit about 400, and up to 90 for each lease;
/// - a penalty, which is a separate key, 56, and 8 to 16 for each denial, at least 32.
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
    /// A store for a million keys on the [system's clock](SystemClock).
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Builds a store with another capacity, or another clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: Box::new(SystemClock),
            capacity: DEFAULT_CAPACITY,
        }
    }

    /// The number of keys, including expired ones that are not yet removed. Locks one shard after
    /// the other.
    pub fn len(&self) -> usize {
        let shards = &self.0.shards;
        (0..SHARDS).map(|home| shards.lock(home).len()).sum()
    }

    /// Whether the store holds no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same as [`ask`](Store::ask), with the answer itself, as it is there at once.
    pub(super) fn decide(&self, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
        match self.ask(checks) {
            Answer::Ready(answer) => answer,
            Answer::Pending(_) => unreachable!("memory answers at once"),
        }
    }

    /// Windows that are aligned follow the wall clock, whenever one begins.
    // Out of line: most windows are not.
    #[inline(never)]
    fn ask_aligned(&self, checks: &[Check<'_>], now: Micros) -> Answer {
        let wall = self.0.clock.wall_clock();
        let aligned = checks.iter().map(|check| Check {
            algorithm: check.algorithm.aligned_by(wall, now),
            ..*check
        });
        let aligned: SmallVec<[Check<'_>; 2]> = aligned.collect();
        self.ask_all(&aligned, now)
    }

    #[inline]
    fn ask_all(&self, checks: &[Check<'_>], now: Micros) -> Answer {
        match checks {
            [check] if !check.action.takes_fewer() => self.ask_one(check, now),
            checks => Answer::Ready(self.ask_together(checks, now)),
        }
    }

    // In place of the answer, which a move would copy with room for several decisions.
    #[inline(always)]
    fn ask_one(&self, check: &Check<'_>, now: Micros) -> Answer {
        let fingerprint = self.0.shards.fingerprint(check);
        let home = Shards::home(fingerprint);
        let mut shard = self.0.shards.lock(home);
        let decision = shard.ask(check, fingerprint, now);
        let count = shard.count();
        drop(shard);
        self.tidy(home, count, now);
        Answer::Ready(decision.map(Decisions::from))
    }

    // Out of line: most questions have one check.
    #[inline(never)]
    fn ask_together(&self, checks: &[Check<'_>], now: Micros) -> Result<Decisions, StoreError> {
        let lessened: SmallVec<[Check<'_>; 2]>;
        let mut together = Together::lock(&self.0.shards, checks, now);
        if let Some(granted) = together.granted() {
            let each = checks.iter();
            lessened = each.map(|check| check.granting(granted)).collect();
            together.replace_checks(&lessened);
        }
        let decisions = together.ask();
        let (home, count) = together.count();
        drop(together);
        self.tidy(home, count, now);
        decisions
    }

    /// Spreads the work of forgetting over the shards, so that traffic on a single key is enough to
    /// clear all of them. Called without a lock held, and waits for none.
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
        let now = self.0.clock.now();
        if checks.iter().any(|check| check.algorithm.is_aligned()) {
            return self.ask_aligned(checks, now);
        }
        self.ask_all(checks, now)
    }

    fn name(&self) -> String {
        "the memory of this process".to_owned()
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

/// Builds a [`MemoryStore`] with settings other than the defaults.
#[must_use]
pub struct MemoryStoreBuilder {
    clock: Box<dyn Clock>,
    capacity: usize,
}

impl MemoryStoreBuilder {
    /// Sets the clock: by default [`SystemClock`]. Tests use a `ManualClock` (feature
    /// `test-util`).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Sets the maximum number of keys, one for each policy, subject and rate: by default a
    /// million. Rounded up to a multiple of 64, and to at least 1024.
    ///
    /// The keys are spread over 64 shards by their hash. A shard can be full a little before the
    /// store holds the maximum.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys;
        self
    }

    /// Builds the store. It allocates memory as keys arrive.
    pub fn build(self) -> MemoryStore {
        let bound = self.capacity.div_ceil(SHARDS).max(LEAST_KEYS_A_SHARD);
        // A clock that needs initialization does it now, not during the first request.
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
