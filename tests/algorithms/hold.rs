//! Holds: for a while nothing goes on, and then everything at the limit's pace.

use std::time::Duration;

use tower_throttle::store::{Acquire, Action, Algorithm, Wait};
use tower_throttle::{Decision, Limit, Micros, SECOND, per_second};

use support::bench::Bench;
use support::limits::every;
use support::on_every_store;

on_every_store! {
    after_a_hold_permits_come_one_by_one
    a_hold_for_a_dear_request_ends_when_that_may_go_on
    a_hold_that_leaves_no_permit_holds_borrowers_too
    a_hold_makes_no_wait_shorter
    a_hold_counts_from_the_longest_of_several
    a_hold_denies_who_does_not_wait
    a_reset_ends_a_hold
    what_cannot_be_waited_for_is_not_held
}

/// Ten a second, of which five at once.
fn debts() -> [Limit; 4] {
    [
        Limit::gcra(10, SECOND).burst(5),
        Limit::token_bucket(5, per_second(10)),
        Limit::leaky_bucket(5, per_second(10)).without_delay(),
        Limit::leaky_bucket(5, per_second(10)),
    ]
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

async fn hold(bench: &Bench, limit: Limit, time: Duration, permits: u64) -> Decision {
    let time = Micros::from(time);
    bench.act(limit, Action::Hold { time, permits }).await
}

/// How long a caller waits who takes this many permits as a throttle does.
async fn wait_for(bench: &Bench, limit: Limit, cost: u64) -> Duration {
    let longest = Micros::new(u64::MAX);
    let wait = match limit == debts()[3] {
        true => Wait::Burst(longest),
        false => Wait::Strict(longest),
    };
    let acquire = Acquire::new(cost).with_wait(wait);
    bench.act(limit, Action::Acquire(acquire)).await.delay()
}

async fn after_a_hold_permits_come_one_by_one(bench: &Bench) {
    for limit in debts() {
        let held = hold(bench, limit, 2 * SECOND, 1).await;
        assert!(held.is_allowed(), "{limit:?}");
        for nth in 0..7 {
            let wait = wait_for(bench, limit, 1).await;
            assert_eq!(wait, 2 * SECOND + ms(100 * nth), "{limit:?}");
        }
        bench.advance(SECOND * 60);
    }
}

async fn a_hold_for_a_dear_request_ends_when_that_may_go_on(bench: &Bench) {
    for limit in debts() {
        let _ = hold(bench, limit, 2 * SECOND, 3).await;
        for nth in 0..3 {
            let wait = wait_for(bench, limit, 3).await;
            assert_eq!(wait, 2 * SECOND + ms(300 * nth), "{limit:?}");
        }
        bench.advance(SECOND * 60);
    }
}

async fn a_hold_that_leaves_no_permit_holds_borrowers_too(bench: &Bench) {
    for limit in debts() {
        let _ = hold(bench, limit, 2 * SECOND, 0).await;
        let acquire = Acquire::new(9).with_wait(Wait::Burst(Micros::new(u64::MAX)));
        let borrowed = bench.act(limit, Action::Acquire(acquire)).await;
        assert_eq!(borrowed.delay(), 2 * SECOND, "{limit:?}");
        bench.advance(SECOND * 60);
    }
}

async fn a_hold_makes_no_wait_shorter(bench: &Bench) {
    for limit in debts() {
        while wait_for(bench, limit, 1).await < 3 * SECOND {}
        let _ = hold(bench, limit, 2 * SECOND, 1).await;
        assert_eq!(wait_for(bench, limit, 1).await, ms(3_100), "{limit:?}");
        bench.advance(SECOND * 60);
    }
}

async fn a_hold_counts_from_the_longest_of_several(bench: &Bench) {
    for limit in debts() {
        for seconds in [1, 3, 2] {
            let _ = hold(bench, limit, seconds * SECOND, 1).await;
        }
        bench.advance(SECOND);
        let _ = hold(bench, limit, SECOND, 1).await;
        assert_eq!(wait_for(bench, limit, 1).await, 2 * SECOND, "{limit:?}");
        bench.advance(SECOND * 60);
    }
}

async fn a_hold_denies_who_does_not_wait(bench: &Bench) {
    for limit in &debts()[..3] {
        let _ = hold(bench, *limit, 2 * SECOND, 1).await;
        let denied = bench.ask(*limit, 1).await;
        assert_eq!(denied.retry_after(), Some(2 * SECOND), "{limit:?}");
        bench.advance(2 * SECOND);
        assert!(bench.ask(*limit, 1).await.is_allowed(), "{limit:?}");
        assert!(!bench.ask(*limit, 1).await.is_allowed(), "{limit:?}");
        bench.advance(SECOND * 60);
    }
}

async fn a_reset_ends_a_hold(bench: &Bench) {
    for limit in debts() {
        let _ = hold(bench, limit, 2 * SECOND, 1).await;
        let _ = bench.act(limit, Action::Reset).await;
        assert_eq!(wait_for(bench, limit, 1).await, ms(0), "{limit:?}");
        bench.advance(SECOND * 60);
    }
}

async fn what_cannot_be_waited_for_is_not_held(bench: &Bench) {
    for (name, limit) in every(3, SECOND) {
        if Algorithm::try_from(&limit).unwrap().can_wait() {
            continue;
        }
        let _ = bench.ask(limit, 1).await;
        let held = hold(bench, limit, 2 * SECOND, 1).await;
        assert_eq!(held.remaining(), 2, "{name}");
        assert!(bench.ask(limit, 2).await.is_allowed(), "{name}");
        bench.advance(SECOND * 60);
    }
}
