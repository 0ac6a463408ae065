//! What a flood of distinct keys leaves in memory: nothing.
//!
//! Each test runs in a process of its own, and with as many keys as take it some seconds. With ten
//! million:
//!
//! ```sh
//! THROTTLE_ENDURANCE=1 cargo test --release --all-features --test endurance -- --nocapture --test-threads 1
//! ```
#![cfg(all(feature = "memory", feature = "redis"))]

mod denials;
mod flood;
mod memory_store;
mod redis_store;
