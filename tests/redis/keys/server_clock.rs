//! The server's clock is the whole fleet's: every script reads it, alone and for those who come
//! together.

use std::time::{Duration, Instant};

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{DAY, Decision, ManualClock};

use crate::keys::{LIMITS, ask_together, shapes};
use support::redis::Server;

/// By another clock, or one that is off by more than a look takes, permits would be paid earlier or
/// later.
#[tokio::test]
async fn every_script_goes_by_the_servers_clock_to_the_microsecond() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    for (name, _, limit) in LIMITS {
        for policies in shapes(name) {
            let started = Instant::now();
            let taken = ask_together(&store, &policies, &limit, Action::consume(1)).await;
            let looked = ask_together(&store, &policies, &limit, Action::look()).await;
            let elapsed = started.elapsed();
            for (taken, looked) in taken.iter().zip(&looked) {
                for (taken, looked) in taken.iter().zip(looked.iter()) {
                    let (at_first, left) = (taken.reset_after(), looked.reset_after());
                    let case = || format!("{policies:?}: {at_first:?} {left:?} {elapsed:?}");
                    assert!(left <= at_first, "{}", case());
                    assert!(left + elapsed >= at_first, "{}", case());
                    assert!(at_first > Duration::ZERO, "{}", case());
                }
            }
        }
    }
}

/// As after a failover to a replica whose clock is behind. The wait comes true only if what it goes by
/// is written.
#[tokio::test]
async fn every_script_that_denies_repairs_what_a_fast_clock_left() {
    let (server, clock) = (Server::start(), ManualClock::new());
    let store = server.builder().clock_for_tests(clock.clone());
    let store = store.connect().await.unwrap().without_deny_cache();
    for (name, _, limit) in LIMITS {
        if Algorithm::try_from(&limit).unwrap().can_wait() {
            // Debts are owed by the clock that they were made by.
            continue;
        }
        for policies in shapes(name) {
            let ask = async |permits| -> Vec<Decision> {
                let action = Action::acquire(permits);
                let answers = ask_together(&store, &policies, &limit, action).await;
                answers.iter().flat_map(|answer| answer.to_vec()).collect()
            };
            let all_allow = |decisions: &[Decision]| decisions.iter().all(Decision::is_allowed);
            assert!(all_allow(&ask(3).await), "{policies:?}");
            clock.step_back(1_000 * DAY);
            let denied = ask(1).await;
            let wait = denied[0].retry_after().unwrap();
            assert!(wait <= 200 * DAY, "{policies:?}: {wait:?}");
            clock.advance(wait - Duration::from_micros(1));
            for (denied, early) in denied.iter().zip(ask(1).await) {
                assert_eq!(denied.retry_after(), Some(wait), "{policies:?}");
                let left = early.retry_after();
                assert_eq!(left, Some(Duration::from_micros(1)), "{policies:?}");
            }
            clock.advance(Duration::from_micros(1));
            assert!(all_allow(&ask(1).await), "{policies:?}");
            clock.advance(1_000 * DAY);
        }
    }
}
