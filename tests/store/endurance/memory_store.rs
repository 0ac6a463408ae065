//! The store in this process.

use std::time::Duration;

use tower_throttle::{HOUR, Limit, ManualClock, MemoryStore, Policy, SECOND};

use super::flood::{Grown, keys, patient};
use support::memory::alone;

/// A store that gets ten times as many keys as it has room for.
struct Flooded {
    grown: Grown,
    held: u64,
    capacity: u64,
}

impl Flooded {
    /// With this pause between keys.
    async fn by(name: &str, limit: Limit, pause: Duration) -> Self {
        let keys = keys(200_000);
        let capacity = keys / 10;
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone());
        let store = store.capacity(capacity as usize).build();
        let limiter = patient(store.clone(), Policy::new("api", limit));
        let grown = Grown::under(name, keys, async |keys| {
            for key in keys {
                clock.advance(pause);
                assert!(limiter.check("api", key).await.unwrap().is_allowed());
            }
        });
        let (grown, held) = (grown.await, store.len() as u64);
        println!("{name}: it holds {held} keys, and has room for {capacity}");
        Self {
            grown,
            held,
            capacity,
        }
    }
}

#[test]
fn a_full_store_takes_no_more_than_documented() {
    alone(a_full_store_takes_no_more_than_documented, async || {
        let limit = Limit::gcra(10, HOUR);
        let flooded = Flooded::by("gcra, full", limit, Duration::ZERO).await;
        assert!(flooded.held >= flooded.capacity * 99 / 100);
        flooded.grown.assert_flat();
        flooded.grown.assert_at_most(180 * flooded.capacity);
    });
}

/// Each key has memory of its own beside the table, which is freed when the key goes.
#[test]
fn memory_stays_flat_in_a_full_store_of_logs() {
    alone(memory_stays_flat_in_a_full_store_of_logs, async || {
        let limit = Limit::sliding_log(10, HOUR);
        let flooded = Flooded::by("sliding_log, full", limit, Duration::ZERO).await;
        assert!(flooded.held >= flooded.capacity * 99 / 100);
        flooded.grown.assert_flat();
        // A log of one request, with the allocator's overhead for its two blocks.
        let log = 48 + 64 + 2 * 16;
        flooded.grown.assert_at_most((180 + log) * flooded.capacity);
    });
}

#[test]
fn keys_that_are_over_make_room_by_themselves() {
    alone(keys_that_are_over_make_room_by_themselves, async || {
        let second = keys(200_000) / 100;
        let pause = SECOND / second as u32;
        let flooded = Flooded::by("gcra, over in a second", Limit::gcra(1, SECOND), pause).await;
        // A second in use, one of grace for a clock that is corrected, and what the broom has not
        // reached yet.
        assert!(flooded.held < 4 * second, "{}", flooded.held);
        flooded.grown.assert_flat();
        flooded.grown.assert_at_most(180 * flooded.held);
    });
}
