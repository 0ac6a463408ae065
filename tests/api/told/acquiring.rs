//! What `try_acquire` tells of its wait is true.

use std::time::Duration;

use super::history::{History, ShownOnFailure, Step, histories};
use super::request::us;
use super::stage::Stage;
use support::bench::Bench;
use support::drawn::drawn;

/// Only the first policy of each history, and only if one can wait for its permits.
const HISTORIES: usize = 1_000;

/// What each client does after the last call.
const LOOKS: usize = 0;
const WAITS_TOO_SHORT: usize = 1;
const WAITS_AS_LONG: usize = 2;
const ASKS_EARLY: usize = 3;
const ASKS_IN_TIME: usize = 4;
const CLIENTS: usize = 5;

#[tokio::test(start_paused = true)]
async fn what_is_told_of_waits_is_true() {
    for history in drawn(histories(true)).take(HISTORIES) {
        is_told_truly(&Bench::memory(), &history).await;
    }
}

fn timeout(step: &Step) -> Duration {
    Duration::from_millis(700) * step.costs[1] as u32 * u32::from(step.other)
}

async fn is_told_truly(bench: &Bench, history: &History) {
    let _shown = ShownOnFailure(history);
    let mut policy = history.policies[0].clone();
    // Its own timeout is the longest that anybody waits.
    policy.is_shadow = false;
    if !policy.can_wait() {
        return;
    }
    let has_penalty = policy.has_penalty();
    let Some(mut stage) = Stage::open(bench, &[policy]) else {
        return;
    };
    let (last, before) = history.steps.split_last().unwrap();
    for step in before {
        bench.advance_us(step.pause_us);
        for client in 0..CLIENTS {
            stage.operate(client, step).await;
            let _ = match step.is_premium {
                true => stage.check(client, 0, step, step.costs[0]).await,
                false => stage.try_acquire(client, step, timeout(step)).await,
            };
            let is_decided = step.costs[0] > 0;
            assert_eq!(stage.take_events().len(), usize::from(is_decided));
        }
    }
    bench.advance_us(last.pause_us);
    let looked = stage.peek(LOOKS, 0, last).await;
    let acquire = async |client, timeout| stage.try_acquire(client, last, timeout).await;
    let told = acquire(LOOKS, timeout(last)).await;
    let after = stage.peek(LOOKS, 0, last).await;
    assert_eq!(after.remaining(), told.remaining(), "{told:?}");
    assert_eq!(after.reset_after(), told.reset_after(), "{told:?}");
    assert_eq!(told.is_allowed(), told.retry_after().is_none());
    if told.banned_for().is_none() {
        assert_eq!(told.is_allowed(), told.delay() <= timeout(last), "{told:?}");
    }
    if has_penalty {
        // It counts the denial.
        for client in [ASKS_EARLY, ASKS_IN_TIME] {
            let other = acquire(client, timeout(last)).await;
            assert_eq!(other.outcome(), told.outcome());
        }
    } else if let Some(too_short) = told.delay().checked_sub(Duration::from_micros(1)) {
        let denied = acquire(WAITS_TOO_SHORT, too_short).await;
        assert!(!denied.is_allowed(), "{told:?}");
        let allowed = acquire(WAITS_AS_LONG, told.delay()).await;
        assert!(allowed.is_allowed(), "{told:?}");
        assert_eq!([denied.delay(), allowed.delay()], [told.delay(); 2]);
    }
    let Some(wait) = told.retry_after() else {
        return;
    };
    if told.banned_for().is_none() {
        assert_eq!(looked.remaining(), told.remaining(), "{told:?}");
    }
    bench.advance_us(us(wait) - 1);
    let early = acquire(ASKS_EARLY, timeout(last)).await;
    assert!(!early.is_allowed(), "{told:?}");
    bench.advance_us(1);
    let in_time = acquire(ASKS_IN_TIME, timeout(last)).await;
    assert!(in_time.is_allowed(), "{told:?}");
}
