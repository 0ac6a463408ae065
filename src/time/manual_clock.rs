//! `ManualClock`: a clock for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Micros;
use super::clock::Clock;

/// A clock that only moves when a test moves it. Clones share the time.
///
/// It does not move while something waits for permits: [testing](crate::guide::testing)
/// has a clock for that.
///
/// ```
/// use tower_throttle::{Limit, Limiter, ManualClock, MemoryStore, Policy, SECOND};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let limiter = Limiter::new(store, [Policy::new("api", Limit::gcra(1, SECOND))])?;
///
/// assert!(limiter.check("api", "alice").await?.is_allowed());
/// assert!(!limiter.check("api", "alice").await?.is_allowed());
/// clock.advance(SECOND);
/// assert!(limiter.check("api", "alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Starts on 2100-01-01: ahead of every server's clock, so that a Redis store driven by this
    /// clock never sees its keys expire under it.
    const START: Micros = Micros::new(4_102_444_800_000_000);

    /// A clock at 2100-01-01 00:00:00 UTC.
    pub fn new() -> Self {
        Self::at(Self::START)
    }

    /// A clock at this instant.
    pub fn at(now: Micros) -> Self {
        Self(Arc::new(AtomicU64::new(now.get())))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by = Micros::from(by).get();
        self.update(|now| now.saturating_add(by));
    }

    /// Moves the clock back, as when a server's clock is corrected.
    pub fn step_back(&self, by: Duration) {
        let by = Micros::from(by).get();
        self.update(|now| now.saturating_sub(by));
    }

    /// Sets the clock.
    pub fn set(&self, now: Micros) {
        self.0.store(now.get(), Ordering::SeqCst);
    }

    fn update(&self, change: impl Fn(u64) -> u64) {
        // The closure always returns `Some`, so the update always happens.
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(change(now)));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros::new(self.0.load(Ordering::SeqCst))
    }
}
