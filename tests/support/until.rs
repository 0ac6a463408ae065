//! Waiting for something that happens by itself.

use std::time::{Duration, Instant};

/// Far longer than anything that is waited for takes.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// Waits until it is so. Returns how long that took.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < GENEROUS, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}
