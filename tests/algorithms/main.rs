//! What the algorithms promise, on every store, and known faults of other systems: each test that
//! excludes one is named after it.

use std::time::Duration;

use tower_throttle::store::Action;
use tower_throttle::{Clock, DAY, Limit, MINUTE, Micros, SECOND};

#[cfg(feature = "calendar")]
mod calendar;
mod concurrency;
mod differential;
mod every_algorithm;
mod fixed_window;
mod gcra;
mod hold;
mod leaky_bucket;
mod migrating;
mod operations;
mod penalty;
mod rates;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod token_bucket;
mod waiting;

use support::bench::Bench;
use support::limits::every;

/// A limit of each algorithm. Some share a key, such as a fixed window and an aligned one, and find
/// each other's state there: by then it must no longer count.
fn every_algorithm(limit: u64, window: Duration) -> impl Iterator<Item = Limit> {
    let each = every(limit, window).into_iter();
    each.map(|(_, limit)| limit)
}

fn credit(permits: u64, taken_at: Option<Micros>) -> Action {
    Action::Credit { permits, taken_at }
}

/// From 1 a year to 10 million a second, including some that divide nothing evenly.
const RATES: [(u64, Duration); 10] = [
    (1, Duration::from_secs(365 * 86_400)),
    (7, MINUTE),
    (3, SECOND),
    (1, Duration::from_millis(1)),
    (999_983, DAY),
    (300_000, SECOND),
    (999_983, SECOND),
    (1_000_000, SECOND),
    (9_999_991, SECOND),
    (10_000_000, SECOND),
];

/// When permits were allowed, one at a time, in bursts, trickles and pauses that are aligned to no
/// window and no slice.
async fn admitted_unevenly(bench: &Bench, limit: Limit) -> Vec<u64> {
    let mut admitted = Vec::new();
    for step in 0..400_u64 {
        bench.advance_us(step * 7_919 % 450_000);
        if bench.ask(limit, 1).await.is_allowed() {
            admitted.push(bench.clock.now().get());
        }
    }
    admitted
}

/// The most of these instants within any second.
fn in_the_fullest_second(admitted: &[u64]) -> usize {
    let from = |start: &u64| {
        let second = *start..start + 1_000_000;
        admitted.iter().filter(|at| second.contains(at)).count()
    };
    admitted.iter().map(from).max().unwrap_or(0)
}

/// How many of a thousand attempts in three seconds are allowed after everything was used up.
async fn had_by_a_fast_caller(bench: &Bench, limit: Limit) -> u64 {
    bench.drain(limit, 1).await;
    let mut had = 0;
    for _ in 0..1_000 {
        bench.advance(Duration::from_millis(3));
        had += u64::from(bench.ask(limit, 1).await.is_allowed());
    }
    had
}
