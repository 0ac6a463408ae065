//! What every store answers to callers that are ready to wait.

use std::time::Duration;

use tower_throttle::store::{Acquire, Action, Wait};
use tower_throttle::{Decision, Limit, MINUTE, Micros, Outcome, SECOND, per_second};

use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    costs_of_1_1_2_4_8_1_at_1_a_second_wait_0_1_1_2_4_8_seconds
    an_impatient_caller_uses_nothing_and_gets_the_wait
    who_waits_until_it_fits_never_passes_the_limit
    a_cost_above_the_capacity_fits_only_when_borrowed
    a_denial_of_one_who_waits_is_exact_about_when_to_come_back
    permits_that_nobody_has_queued_behind_are_given_back
    permits_with_a_queue_behind_them_stay_used
    what_has_been_paid_meanwhile_is_not_given_back_once_more
    a_queue_lets_one_out_at_a_time_and_says_when
    a_queue_that_is_full_denies_until_there_is_room
    a_caller_that_does_not_wait_gets_no_delay
}

const FOR_EVER: Micros = Micros::new(u64::MAX);
const MICROSECOND: Duration = Duration::from_micros(1);

fn borrow(cost: u64, longest: impl Into<Micros>) -> Action {
    patient(cost, Wait::Burst(longest.into()))
}

fn wait(cost: u64, longest: impl Into<Micros>) -> Action {
    patient(cost, Wait::Strict(longest.into()))
}

fn patient(cost: u64, wait: Wait) -> Action {
    Action::Acquire(Acquire::new(cost).with_wait(wait))
}

fn cancel(permits: u64, taken: &Decision) -> Action {
    Action::Cancel {
        permits,
        receipt: taken.receipt(),
    }
}

/// Every limit that can be waited for and is no queue: three at once, one a second.
fn every_bucket() -> [Limit; 3] {
    [
        Limit::gcra(1, SECOND).burst(3),
        Limit::token_bucket(3, per_second(1)),
        Limit::leaky_bucket(3, per_second(1)).without_delay(),
    ]
}

async fn costs_of_1_1_2_4_8_1_at_1_a_second_wait_0_1_1_2_4_8_seconds(bench: &Bench) {
    for limit in every_bucket() {
        // Nothing is stored at first.
        assert_eq!(bench.drain(limit, 1).await, 3);
        for (cost, seconds) in [(1, 0), (1, 1), (2, 1), (4, 2), (8, 4), (1, 8)] {
            let granted = bench.act(limit, borrow(cost, FOR_EVER)).await;
            assert!(granted.is_allowed());
            assert_eq!(granted.delay(), seconds * SECOND, "{limit:?}, {cost}");
            bench.advance(granted.delay());
        }
        let _ = bench.act(limit, Action::Reset).await;
    }
}

async fn an_impatient_caller_uses_nothing_and_gets_the_wait(bench: &Bench) {
    for limit in every_bucket() {
        let _ = bench.act(limit, borrow(8, FOR_EVER)).await;
        let before = bench.ask(limit, 0).await;
        for wait in [Duration::ZERO, SECOND, 5 * SECOND - MICROSECOND] {
            let denied = bench.act(limit, borrow(1, wait)).await;
            assert_eq!(denied.outcome(), Outcome::Denied);
            assert_eq!(denied.delay(), 5 * SECOND, "{limit:?}, {wait:?}");
            assert_eq!(denied.retry_after(), Some(5 * SECOND - wait));
        }
        assert_eq!(bench.ask(limit, 0).await, before);
        let granted = bench.act(limit, borrow(1, 5 * SECOND)).await;
        assert!(granted.is_allowed());
        assert_eq!(granted.delay(), 5 * SECOND);
        let _ = bench.act(limit, Action::Reset).await;
    }
}

async fn who_waits_until_it_fits_never_passes_the_limit(bench: &Bench) {
    for limit in every_bucket() {
        // Three are there, the others come one by one.
        for seconds in [0, 0, 0, 1, 2, 3, 4] {
            let granted = bench.act(limit, wait(1, 4 * SECOND)).await;
            assert!(granted.is_allowed());
            assert_eq!(granted.delay(), seconds * SECOND, "{limit:?}");
        }
        let denied = bench.act(limit, wait(1, 4 * SECOND)).await;
        assert_eq!(denied.outcome(), Outcome::Denied);
        assert_eq!(denied.delay(), 5 * SECOND);
        let _ = bench.act(limit, Action::Reset).await;
    }
}

async fn a_cost_above_the_capacity_fits_only_when_borrowed(bench: &Bench) {
    for limit in every_bucket() {
        let never = bench.act(limit, wait(4, FOR_EVER)).await;
        assert_eq!(never.outcome(), Outcome::NeverFits);
        assert_eq!((never.delay(), never.retry_after()), (Duration::ZERO, None));
        let granted = bench.act(limit, borrow(100, FOR_EVER)).await;
        assert!(granted.is_allowed());
        assert_eq!(granted.delay(), Duration::ZERO);
        let next = bench.act(limit, borrow(1, FOR_EVER)).await;
        assert_eq!(next.delay(), 97 * SECOND);
        let _ = bench.act(limit, Action::Reset).await;
    }
}

async fn a_denial_of_one_who_waits_is_exact_about_when_to_come_back(bench: &Bench) {
    let thirds = Limit::gcra(3, SECOND).burst(1);
    let queue = Limit::leaky_bucket(4, per_second(3));
    for limit in every_bucket().into_iter().chain([thirds, queue]) {
        for action in [borrow(1, SECOND), wait(1, SECOND)] {
            let denied = loop {
                let decision = bench.act(limit, action).await;
                if !decision.is_allowed() {
                    break decision;
                }
            };
            bench.advance(denied.retry_after().unwrap() - MICROSECOND);
            let early = bench.act(limit, action).await;
            assert_eq!(early.retry_after(), Some(MICROSECOND), "{limit:?}");
            bench.advance(MICROSECOND);
            let granted = bench.act(limit, action).await;
            assert!(granted.is_allowed(), "{limit:?}");
            assert_eq!(granted.delay(), SECOND, "{limit:?}");
            let _ = bench.act(limit, Action::Reset).await;
        }
    }
}

async fn permits_that_nobody_has_queued_behind_are_given_back(bench: &Bench) {
    for limit in every_bucket() {
        let _ = bench.act(limit, borrow(5, FOR_EVER)).await;
        let waiting = bench.act(limit, borrow(4, FOR_EVER)).await;
        assert_eq!(waiting.delay(), 2 * SECOND);
        bench.advance(SECOND);
        let left = bench.act(limit, cancel(4, &waiting)).await;
        assert_eq!(left.reset_after(), 4 * SECOND, "{limit:?}");
        let next = bench.act(limit, borrow(1, FOR_EVER)).await;
        assert_eq!(next.delay(), SECOND, "{limit:?}");
        let _ = bench.act(limit, Action::Reset).await;
    }
}

async fn permits_with_a_queue_behind_them_stay_used(bench: &Bench) {
    for limit in every_bucket() {
        let first = bench.act(limit, borrow(5, FOR_EVER)).await;
        let second = bench.act(limit, borrow(1, FOR_EVER)).await;
        let third = bench.act(limit, borrow(1, FOR_EVER)).await;
        for (permits, taken) in [(5, first), (1, second)] {
            let left = bench.act(limit, cancel(permits, &taken)).await;
            assert_eq!(left.reset_after(), 7 * SECOND, "{limit:?}");
        }
        let left = bench.act(limit, cancel(1, &third)).await;
        assert_eq!(left.reset_after(), 6 * SECOND, "{limit:?}");
        // Nobody is behind the second any more.
        let left = bench.act(limit, cancel(1, &second)).await;
        assert_eq!(left.reset_after(), 5 * SECOND, "{limit:?}");
        let _ = bench.act(limit, Action::Reset).await;
    }
}

async fn what_has_been_paid_meanwhile_is_not_given_back_once_more(bench: &Bench) {
    for limit in every_bucket() {
        let taken = bench.act(limit, borrow(2, FOR_EVER)).await;
        bench.advance(MINUTE);
        let _ = bench.act(limit, borrow(2, FOR_EVER)).await;
        let left = bench.act(limit, cancel(2, &taken)).await;
        assert_eq!(left.reset_after(), 2 * SECOND, "{limit:?}");
        let _ = bench.act(limit, Action::Reset).await;
    }
}

async fn a_queue_lets_one_out_at_a_time_and_says_when(bench: &Bench) {
    let queue = Limit::leaky_bucket(4, per_second(10));
    let step = SECOND / 10;
    for ahead in 0..4_u32 {
        let admitted = bench.ask(queue, 1).await;
        assert!(admitted.is_allowed());
        assert_eq!(admitted.delay(), ahead * step);
        assert_eq!(admitted.remaining(), 3 - u64::from(ahead));
    }
    // Also after a while, and for a caller that would wait longer than the queue is.
    bench.advance(step / 2);
    let patient = bench.act(queue, borrow(1, FOR_EVER)).await;
    assert_eq!(patient.delay(), 4 * step - step / 2);
    // A higher cost keeps those behind it waiting, not itself.
    let dear = bench.act(queue, borrow(3, FOR_EVER)).await;
    assert_eq!(dear.delay(), 5 * step - step / 2);
    let last = bench.act(queue, borrow(1, FOR_EVER)).await;
    assert_eq!(last.delay(), 8 * step - step / 2);
}

async fn a_queue_that_is_full_denies_until_there_is_room(bench: &Bench) {
    let queue = Limit::leaky_bucket(2, per_second(10));
    let _ = bench.ask(queue, 2).await;
    let denied = bench.ask(queue, 1).await;
    assert_eq!(denied.outcome(), Outcome::Denied);
    assert_eq!(denied.retry_after(), Some(SECOND / 10));
    bench.advance(SECOND / 10 - MICROSECOND);
    assert!(!bench.ask(queue, 1).await.is_allowed());
    bench.advance(MICROSECOND);
    let admitted = bench.ask(queue, 1).await;
    assert!(admitted.is_allowed());
    assert_eq!(admitted.delay(), SECOND / 10);
    assert_eq!(bench.ask(queue, 3).await.outcome(), Outcome::NeverFits);
}

async fn a_caller_that_does_not_wait_gets_no_delay(bench: &Bench) {
    for limit in every_bucket() {
        assert_eq!(bench.drain(limit, 1).await, 3);
        let denied = bench.ask(limit, 1).await;
        assert_eq!(denied.retry_after(), Some(SECOND));
        assert_eq!(denied.delay(), Duration::ZERO);
        let _ = bench.act(limit, Action::Reset).await;
    }
}
