//! tokio's clock as a store's. In a test that starts with time paused it moves on by itself when
//! everybody waits, and stands still otherwise: waits are measured to the millisecond, and nobody
//! waits for them.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tower_throttle::{Clock, MemoryStore, Micros};

pub struct TokioClock {
    start: Instant,
}

impl Clock for TokioClock {
    fn now(&self) -> Micros {
        // 2100-01-01, as a manual clock.
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

/// What comes of it, and how long that takes.
pub async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    (future.await, start.elapsed())
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
