//! Waiting for what comes by itself.

use std::time::{Duration, Instant};

/// Far above what anything takes that is waited for.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// Waits until it is so; how long that took.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < GENEROUS, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}
