//! The waits that `try_acquire` reports are true.

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
async fn reported_waits_are_true() {
    for history in drawn(histories(true)).take(HISTORIES) {
        check_answers(&Bench::memory(), &history).await;
    }
}

fn timeout(step: &Step) -> Duration {
    Duration::from_millis(700) * step.costs[1] as u32 * u32::from(step.other)
}

async fn check_answers(bench: &Bench, history: &History) {
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
    let found = acquire(LOOKS, timeout(last)).await;
    let after = stage.peek(LOOKS, 0, last).await;
    assert_eq!(after.remaining(), found.remaining(), "{found:?}");
    assert_eq!(after.reset_after(), found.reset_after(), "{found:?}");
    assert_eq!(found.is_allowed(), found.retry_after().is_none());
    if found.banned_for().is_none() {
        assert_eq!(
            found.is_allowed(),
            found.delay() <= timeout(last),
            "{found:?}"
        );
    }
    if has_penalty {
        // It counts the denial.
        for client in [ASKS_EARLY, ASKS_IN_TIME] {
            let other = acquire(client, timeout(last)).await;
            assert_eq!(other.outcome(), found.outcome());
        }
    } else if let Some(too_short) = found.delay().checked_sub(Duration::from_micros(1)) {
        let denied = acquire(WAITS_TOO_SHORT, too_short).await;
        assert!(!denied.is_allowed(), "{found:?}");
        let allowed = acquire(WAITS_AS_LONG, found.delay()).await;
        assert!(allowed.is_allowed(), "{found:?}");
        assert_eq!([denied.delay(), allowed.delay()], [found.delay(); 2]);
    }
    let Some(wait) = found.retry_after() else {
        return;
    };
    if found.banned_for().is_none() {
        assert_eq!(looked.remaining(), found.remaining(), "{found:?}");
    }
    bench.advance_us(us(wait) - 1);
    let early = acquire(ASKS_EARLY, timeout(last)).await;
    assert!(!early.is_allowed(), "{found:?}");
    bench.advance_us(1);
    let in_time = acquire(ASKS_IN_TIME, timeout(last)).await;
    assert!(in_time.is_allowed(), "{found:?}");
}
