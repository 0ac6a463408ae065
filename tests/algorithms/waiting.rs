//! Waiting: permits that are not there yet, with a delay.

use std::time::Duration;

use tower_throttle::store::{Acquire, Action, Wait};
use tower_throttle::{DAY, Decision, Limit, MINUTE, Micros, Outcome, SECOND, per_second};

use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    costs_1_1_2_4_8_1_at_one_a_second_wait_0_1_1_2_4_8_seconds
    who_would_wait_too_long_is_denied_at_once_and_takes_nothing
    a_cost_above_the_capacity_waits_for_all_earlier_callers
    who_waits_until_it_fits_goes_on_when_it_does
    who_gives_up_gives_back_unless_somebody_waits_behind
    callers_that_do_not_wait_get_no_delay
    what_gives_no_permits_ahead_of_time_lets_nobody_wait
}

/// One permit a second, one at once.
const BUCKETS: [Limit; 2] = [
    Limit::token_bucket(1, per_second(1)),
    Limit::gcra(1, SECOND),
];

const QUEUE: Limit = Limit::leaky_bucket(1, per_second(1));

/// Waits for everything that others have taken, but no longer than that.
async fn try_acquire(bench: &Bench, limit: Limit, cost: u64, timeout: Duration) -> Decision {
    let take = Acquire::new(cost).with_wait(Wait::Burst(Micros::from(timeout)));
    bench.act(limit, Action::Acquire(take)).await
}

async fn acquire(bench: &Bench, limit: Limit, cost: u64) -> Decision {
    try_acquire(bench, limit, cost, Duration::MAX).await
}

/// If a caller takes more than there is, the next one waits for it.
async fn costs_1_1_2_4_8_1_at_one_a_second_wait_0_1_1_2_4_8_seconds(bench: &Bench) {
    for limit in BUCKETS.into_iter().chain([QUEUE]) {
        // A bucket has a token to begin with; an idle queue has nothing.
        if limit != QUEUE {
            bench.drain(limit, 1).await;
        }
        for (cost, wait) in [(1, 0), (1, 1), (2, 1), (4, 2), (8, 4), (1, 8)] {
            let decision = acquire(bench, limit, cost).await;
            assert!(decision.is_allowed(), "{limit:?}");
            assert_eq!(decision.delay(), wait * SECOND, "{limit:?} for {cost}");
            bench.advance(decision.delay());
        }
    }
}

async fn who_would_wait_too_long_is_denied_at_once_and_takes_nothing(bench: &Bench) {
    for limit in BUCKETS {
        bench.drain(limit, 1).await;
        let _ = acquire(bench, limit, 9).await;
        let before = bench.ask(limit, 0).await;
        let denied = try_acquire(bench, limit, 1, 5 * SECOND).await;
        assert_eq!(denied.outcome(), Outcome::Denied);
        assert_eq!(denied.delay(), 9 * SECOND, "how long it would have been");
        assert_eq!(denied.retry_after(), Some(4 * SECOND));
        assert_eq!(bench.ask(limit, 0).await, before);
        bench.advance(4 * SECOND);
        let allowed = try_acquire(bench, limit, 1, 5 * SECOND).await;
        assert_eq!((allowed.is_allowed(), allowed.delay()), (true, 5 * SECOND));
    }
}

/// More than the bucket ever holds can be had by waiting: the next caller pays for it.
async fn a_cost_above_the_capacity_waits_for_all_earlier_callers(bench: &Bench) {
    for limit in BUCKETS.into_iter().chain([QUEUE]) {
        assert_eq!(bench.ask(limit, 60).await.outcome(), Outcome::NeverFits);
        assert_eq!(acquire(bench, limit, 60).await.delay(), Duration::ZERO);
        assert!(!bench.ask(limit, 1).await.is_allowed());
    }
    assert_eq!(acquire(bench, BUCKETS[0], 1).await.delay(), 59 * SECOND);
    assert_eq!(acquire(bench, QUEUE, 1).await.delay(), MINUTE);
}

async fn who_waits_until_it_fits_goes_on_when_it_does(bench: &Bench) {
    for limit in [
        Limit::token_bucket(2, per_second(1)),
        Limit::gcra(1, SECOND).burst(2),
    ] {
        bench.drain(limit, 1).await;
        let take =
            Action::Acquire(Acquire::new(1).with_wait(Wait::Strict(Micros::from(3 * SECOND))));
        for delay in 1..=3 {
            let decision = bench.act(limit, take).await;
            assert_eq!(
                (decision.is_allowed(), decision.delay()),
                (true, delay * SECOND)
            );
        }
        let denied = bench.act(limit, take).await;
        assert_eq!((denied.is_allowed(), denied.delay()), (false, 4 * SECOND));
        assert_eq!(denied.retry_after(), Some(SECOND));
    }
}

async fn who_gives_up_gives_back_unless_somebody_waits_behind(bench: &Bench) {
    for limit in BUCKETS.into_iter().chain([QUEUE]) {
        bench.drain(limit, 1).await;
        let nobody_before = bench.ask(limit, 0).await.reset_after();
        let first = acquire(bench, limit, 5).await;
        let cancel = |permits, of: &Decision| Action::Cancel {
            permits,
            receipt: of.receipt(),
        };
        let given_back = bench.act(limit, cancel(5, &first)).await;
        assert_eq!(given_back.reset_after(), nobody_before);

        let first = acquire(bench, limit, 5).await;
        let second = acquire(bench, limit, 1).await;
        let stays = bench.act(limit, cancel(5, &first)).await;
        assert_eq!(stays.reset_after(), nobody_before + 6 * SECOND);
        // The one behind gives up, then the first can.
        let _ = bench.act(limit, cancel(1, &second)).await;
        let given_back = bench.act(limit, cancel(5, &first)).await;
        assert_eq!(given_back.reset_after(), nobody_before);
        let once = bench.act(limit, cancel(5, &first)).await;
        assert_eq!(once.reset_after(), nobody_before);
    }
}

async fn callers_that_do_not_wait_get_no_delay(bench: &Bench) {
    for limit in BUCKETS.into_iter().chain([QUEUE]) {
        bench.drain(limit, 1).await;
        let denied = bench.ask(limit, 1).await;
        assert_eq!(denied.retry_after(), Some(SECOND));
        assert_eq!(denied.delay(), Duration::ZERO, "{limit:?}");
    }
}

async fn what_gives_no_permits_ahead_of_time_lets_nobody_wait(bench: &Bench) {
    for limit in [
        Limit::fixed_window(1, SECOND),
        Limit::sliding_log(1, SECOND),
        Limit::sliding_window(1, SECOND),
        Limit::sliding_counter(1, SECOND),
        Limit::concurrency(1).lease(SECOND),
    ] {
        let _ = bench.ask(limit, 1).await;
        let denied = try_acquire(bench, limit, 1, DAY).await;
        assert_eq!(denied.outcome(), Outcome::Denied, "{limit:?}");
        assert_eq!(denied.delay(), Duration::ZERO);
        assert_eq!(
            try_acquire(bench, limit, 2, DAY).await.outcome(),
            Outcome::NeverFits
        );
    }
}
