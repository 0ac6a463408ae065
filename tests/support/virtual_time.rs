//! tokio's clock as a store's clock. In a test that starts with paused time it advances only while
//! all tasks wait. So waits are measured to the millisecond, but take no real time.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::{Clock, MemoryStore, Micros};

pub struct TokioClock {
    start: Instant,
}

impl Clock for TokioClock {
    fn now(&self) -> Micros {
        // 2100-01-01, as in a manual clock.
        Micros::new(4_102_444_800_000_000).saturating_add(self.start.elapsed().into())
    }
}

pub fn clock() -> TokioClock {
    let start = Instant::now();
    TokioClock { start }
}

/// A store on tokio's clock.
pub fn store() -> MemoryStore {
    MemoryStore::builder().clock(clock()).build()
}

/// The result, and how long it took.
pub async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    (future.await, start.elapsed())
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
