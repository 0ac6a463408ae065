//! Two processes that share a store, each with its own memory.

use std::cell::Cell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tower_throttle::store::DenyCache;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{DAY, Limit, MINUTE, ManualClock, MemoryStore, per_minute};

use super::ask;
use support::bench::answer;

const LIMITS: [Limit; 7] = [
    Limit::gcra(5, MINUTE),
    Limit::token_bucket(5, per_minute(7)),
    Limit::leaky_bucket(3, per_minute(5)),
    Limit::fixed_window(5, MINUTE),
    Limit::sliding_log(5, MINUTE),
    Limit::sliding_window(5, MINUTE),
    Limit::sliding_counter(5, MINUTE),
];

/// Who asks, for how many permits, whether they are charged unconditionally, and after how long.
fn questions() -> impl Strategy<Value = Vec<(usize, u64, bool, u64)>> {
    let after_us = prop_oneof![Just(0), 1_u64..3_000_000, 1_u64..70_000_000];
    let question = (0_usize..2, 1_u64..5, prop::bool::weighted(0.1), after_us);
    prop::collection::vec(question, 60)
}

/// What the other process takes meanwhile makes a wait longer, never shorter. A denial leaves no
/// trace, so the store can be asked the same at the same instant.
#[test]
fn every_remembered_denial_is_one_that_the_store_would_give() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let hits = Cell::new(0);
    let mut runner = TestRunner::new(Config::with_cases(300));
    let history = (prop::sample::select(LIMITS.to_vec()), questions());
    let found = runner.run(&history, |(limit, questions)| {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let processes = [(); 2].map(|()| {
            let cache = DenyCache::new(store.clone()).max_age(DAY);
            cache.clock_for_tests(clock.clone())
        });
        let algorithm = Algorithm::try_from(&limit).unwrap();
        for (process, permits, is_charged, after_us) in questions {
            clock.advance(Duration::from_micros(after_us));
            let action = if is_charged {
                Action::Charge(permits)
            } else {
                Action::acquire(permits)
            };
            let asked = [("api", algorithm, "alice", action)];
            let told = runtime.block_on(answer(ask(&processes[process], &asked)))[0];
            if told.is_remembered() {
                hits.set(hits.get() + 1);
                let is = runtime.block_on(answer(ask(&store, &asked)))[0];
                prop_assert!(!told.is_allowed() && !is.is_allowed());
                prop_assert!(told.retry_after() <= is.retry_after());
            }
        }
        Ok(())
    });
    found.unwrap();
    assert!(hits.get() > 300, "only {} were remembered", hits.get());
}
