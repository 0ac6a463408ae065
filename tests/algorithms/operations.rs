//! Peek, charge, credit and reset, for every algorithm.

use std::time::Duration;

use tower_throttle::store::Receipt;
use tower_throttle::store::{Action, Algorithm, LeaseId};
use tower_throttle::{Clock, DAY, HOUR, Limit, MINUTE, Outcome, Rate, SECOND, per_minute};

use crate::{credit, every_algorithm};
use support::bench::Bench;
use support::limits::in_time;
use support::on_every_store;

on_every_store! {
    a_peek_takes_nothing_and_is_always_allowed
    a_charge_takes_without_asking_and_may_go_over
    what_is_charged_above_the_limit_is_waited_for
    charges_above_the_largest_count_leave_no_trace
    charges_after_a_clock_step_back_forgive_no_debt
    withdrawing_from_a_full_bucket_without_waiters_refunds
    nothing_is_withdrawn_while_somebody_may_wait_a_fraction
    a_credit_is_clamped_at_the_untouched_state
    a_credit_of_the_same_permits_undoes_an_acquire
    a_credit_never_revives_an_ended_window
    no_more_is_credited_than_was_used
    a_credit_does_not_extend_what_is_left
    refunded_permits_count_as_never_acquired
    late_refunds_of_a_busy_log_make_no_wait_too_short
    a_reset_forgets_this_key_and_no_other
    what_takes_nothing_leaves_nothing_behind
}

async fn a_peek_takes_nothing_and_is_always_allowed(bench: &Bench) {
    for limit in every_algorithm(3, MINUTE) {
        for left in [3, 2, 1, 0] {
            for _ in 0..3 {
                let looked = bench.act(limit, Action::look()).await;
                assert_eq!(
                    (looked.outcome(), looked.remaining()),
                    (Outcome::Allowed, left)
                );
                assert_eq!(looked.delay(), Duration::ZERO, "{limit:?}");
            }
            let _ = bench.ask(limit, 1).await;
        }
        bench.advance(2 * MINUTE);
    }
}

async fn a_charge_takes_without_asking_and_may_go_over(bench: &Bench) {
    for limit in every_algorithm(5, MINUTE) {
        bench.align(MINUTE);
        assert_eq!(bench.act(limit, Action::Charge(2)).await.remaining(), 3);
        assert_eq!(bench.act(limit, Action::Charge(9)).await.remaining(), 0);
        let denied = bench.ask(limit, 1).await;
        assert_eq!(denied.outcome(), Outcome::Denied, "{limit:?}");
        // Exactly as long as it takes until the excess has come back.
        let wait = denied.retry_after().unwrap();
        bench.advance(wait);
        bench.clock.step_back(Duration::from_micros(1));
        assert!(!bench.ask(limit, 1).await.is_allowed(), "{limit:?}");
        bench.advance_us(1);
        assert!(bench.ask(limit, 1).await.is_allowed(), "{limit:?}");
        bench.advance(10 * MINUTE);
    }
}

/// Eleven of five, and one for the caller.
async fn what_is_charged_above_the_limit_is_waited_for(bench: &Bench) {
    let rate = per_minute(5);
    for (limit, wait_us) in [
        // A permit every twelve seconds, and seven too many.
        (Limit::gcra(5, MINUTE), 84_000_000),
        (Limit::token_bucket(5, rate), 84_000_000),
        (Limit::leaky_bucket(5, rate), 84_000_000),
        // All come back at once: with their window, entry, slice or lease.
        (Limit::fixed_window(5, MINUTE), 60_000_000),
        (Limit::sliding_log(5, MINUTE), 60_000_000),
        (Limit::sliding_window(5, MINUTE), 66_000_000),
        (Limit::concurrency(5).lease(MINUTE), 60_000_000),
        // In the next window, when no more than four of eleven still count.
        (Limit::sliding_counter(5, MINUTE), 98_181_819),
    ] {
        bench.align(MINUTE);
        let _ = bench.act(limit, Action::Charge(11)).await;
        let wait = bench.ask(limit, 1).await.retry_after();
        assert_eq!(wait, Some(Duration::from_micros(wait_us)), "{limit:?}");
    }
}

async fn charges_above_the_largest_count_leave_no_trace(bench: &Bench) {
    let limit = Limit::sliding_window(1, SECOND).slices(2);
    bench.align(SECOND);
    let _ = bench.act(limit, Action::Charge(u64::MAX)).await;
    bench.advance(SECOND / 2);
    let _ = bench.act(limit, Action::Charge(1)).await;
    // Of the first slice only.
    let looked = bench.act(limit, Action::look()).await;
    assert_eq!(looked.reset_after(), SECOND);
}

/// Then more is owed than a charge can ever bring about.
async fn charges_after_a_clock_step_back_forgive_no_debt(bench: &Bench) {
    let limit = Limit::gcra(1, 366 * DAY).burst(1);
    let _ = bench.act(limit, Action::Charge(1_000)).await;
    bench.clock.step_back(HOUR);
    let before = bench.ask(limit, 0).await.reset_after();
    let charged = bench.act(limit, Action::Charge(1)).await;
    assert_eq!(charged.reset_after(), before);
    assert_eq!(bench.ask(limit, 0).await.reset_after(), before);
}

async fn withdrawing_from_a_full_bucket_without_waiters_refunds(bench: &Bench) {
    let limit = Limit::token_bucket(5, per_minute(5));
    let receipt = bench.ask(limit, 2).await.receipt();
    assert_eq!(bench.ask(limit, 3).await.remaining(), 0);
    let permits = 2;
    let left = bench
        .act(limit, Action::Withdraw { permits, receipt })
        .await;
    assert_eq!(left.remaining(), 2);
}

async fn nothing_is_withdrawn_while_somebody_may_wait_a_fraction(bench: &Bench) {
    let limit = Limit::token_bucket(3, Rate::new(3, SECOND));
    let _ = bench.ask(limit, 1).await;
    let receipt = bench.ask(limit, 2).await.receipt();
    let _ = bench.act(limit, Action::Charge(1)).await;
    let withdraw = Action::Withdraw {
        permits: 2,
        receipt,
    };
    // A third of a microsecond is owed above the capacity, and then nothing is.
    bench.advance_us(333_333);
    assert_eq!(bench.act(limit, withdraw).await.remaining(), 0);
    bench.advance_us(1);
    assert_eq!(bench.act(limit, withdraw).await.remaining(), 2);
}

async fn a_credit_is_clamped_at_the_untouched_state(bench: &Bench) {
    for limit in every_algorithm(5, MINUTE) {
        let _ = bench.act(limit, Action::Charge(4)).await;
        assert_eq!(
            bench.act(limit, credit(1, None)).await.remaining(),
            2,
            "{limit:?}"
        );
        let whole = bench.act(limit, credit(100, None)).await;
        assert_eq!(whole.remaining(), 5, "{limit:?}");
        assert!(whole.reset_after().is_zero());
        assert_eq!(bench.act(limit, credit(100, None)).await.remaining(), 5);
        // No more than the limit is there, however much was given back.
        assert_eq!(bench.drain(limit, 1).await, 5, "{limit:?}");
        bench.advance(2 * MINUTE);
    }
}

async fn a_credit_of_the_same_permits_undoes_an_acquire(bench: &Bench) {
    for limit in every_algorithm(5, MINUTE) {
        let _ = bench.ask(limit, 1).await;
        bench.advance(SECOND);
        let before = bench.ask(limit, 0).await;
        let taken = bench.ask(limit, 3).await;
        assert!(taken.is_allowed());
        let given_back = bench
            .act(limit, credit(3, taken.receipt().taken_at()))
            .await;
        assert_eq!(given_back.remaining(), before.remaining(), "{limit:?}");
        bench.advance(2 * MINUTE);
    }
}

/// What has come back by itself is not given back again at others' expense.
async fn a_credit_never_revives_an_ended_window(bench: &Bench) {
    for limit in [
        Limit::fixed_window(5, MINUTE),
        Limit::sliding_log(5, MINUTE),
        Limit::sliding_window(5, MINUTE),
        Limit::sliding_counter(5, MINUTE),
        Limit::fixed_window(5, MINUTE).aligned(),
    ] {
        bench.align(MINUTE);
        let taken = bench.ask(limit, 5).await;
        bench.advance(taken.reset_after());
        let untouched = bench.ask(limit, 0).await;
        let late = bench
            .act(limit, credit(5, taken.receipt().taken_at()))
            .await;
        assert_eq!(late.remaining(), untouched.remaining());
        assert!(late.reset_after().is_zero(), "{limit:?}");

        let others = bench.ask(limit, 3).await;
        let late = bench
            .act(limit, credit(5, taken.receipt().taken_at()))
            .await;
        assert_eq!(late.remaining(), others.remaining(), "{limit:?}");
        assert_eq!(late.reset_after(), others.reset_after(), "{limit:?}");
        assert_eq!(bench.drain(limit, 1).await, 2, "{limit:?}");
        bench.advance(2 * MINUTE);
    }
}

/// In a log, the credit of an entry removes it; the second finds it gone and credits nothing.
async fn no_more_is_credited_than_was_used(bench: &Bench) {
    for limit in every_algorithm(9, MINUTE) {
        let taken = bench.ask(limit, 4).await.receipt().taken_at();
        for (permits, left) in [(3, 8), (3, 9), (3, 9)] {
            let given_back = bench.act(limit, credit(permits, taken)).await;
            assert_eq!(given_back.remaining(), left, "{limit:?}");
        }
        bench.advance(2 * MINUTE);
    }
}

async fn a_credit_does_not_extend_what_is_left(bench: &Bench) {
    for limit in every_algorithm(9, MINUTE) {
        bench.align(MINUTE);
        let _ = bench.ask(limit, 8).await;
        bench.advance(SECOND);
        let before = bench.ask(limit, 0).await;
        let after = bench.act(limit, credit(2, None)).await;
        assert!(after.reset_after() <= before.reset_after(), "{limit:?}");
        bench.advance(before.reset_after());
        assert_eq!(bench.ask(limit, 0).await.remaining(), 9, "{limit:?}");
        bench.advance(2 * MINUTE);
    }
}

async fn a_reset_forgets_this_key_and_no_other(bench: &Bench) {
    for limit in every_algorithm(2, MINUTE) {
        for key in ["alice", "bob"] {
            bench.ask_all(&[("policy", limit, key, 2)]).await;
        }
        let algorithm = Algorithm::try_from(&limit).unwrap();
        let reset = bench
            .act_all(&[("policy", algorithm, "alice", Action::Reset)])
            .await;
        assert_eq!(reset[0].remaining(), 2, "{limit:?}");
        assert!(reset[0].reset_after().is_zero());
        for (key, left) in [("alice", 2), ("bob", 0)] {
            let looked = bench.ask_all(&[("policy", limit, key, 0)]).await;
            assert_eq!(looked[0].remaining(), left, "{limit:?}");
        }
        bench.advance(2 * MINUTE);
    }
}

async fn what_takes_nothing_leaves_nothing_behind(bench: &Bench) {
    for limit in every_algorithm(3, MINUTE) {
        for action in [
            Action::Charge(0),
            credit(2, None),
            credit(2, Some(bench.clock.now())),
            Action::Cancel {
                permits: 2,
                receipt: Receipt::default(),
            },
            Action::Reset,
            Action::Renew(LeaseId::new()),
            Action::Release(LeaseId::new()),
        ] {
            let decision = bench.act(limit, action).await;
            assert_eq!(
                (decision.is_allowed(), decision.remaining()),
                (true, 3),
                "{limit:?} {action:?}"
            );
            assert_eq!(bench.stored(), 0, "{limit:?} {action:?}");
        }
    }
}

/// With a limit on failed logins, those that succeed in between neither add to the failures nor
/// keep them.
async fn refunded_permits_count_as_never_acquired(bench: &Bench) {
    for (_, limit) in in_time(5, MINUTE) {
        bench.align(MINUTE);
        let mut left = Vec::new();
        for refunds in [false, true] {
            let looked = bench.act(limit, Action::look()).await;
            assert_eq!(looked.remaining(), 5, "{limit:?}");
            for _ in 0..3 {
                assert!(bench.ask(limit, 1).await.is_allowed());
                bench.advance(SECOND);
            }
            let mut seen = Vec::new();
            for _ in 0..130 {
                bench.advance(SECOND);
                if refunds {
                    let taken = bench.ask(limit, 1).await;
                    assert!(taken.is_allowed(), "{limit:?}");
                    let refund = Action::Refund {
                        permits: 1,
                        receipt: taken.receipt(),
                    };
                    let _ = bench.act(limit, refund).await;
                }
                seen.push(bench.act(limit, Action::look()).await.remaining());
            }
            assert_eq!(seen.last(), Some(&5), "{limit:?}");
            left.push(seen);
            bench.advance(2 * MINUTE);
            bench.align(MINUTE);
        }
        assert_eq!(left[0], left[1], "{limit:?}");
    }
}

/// If too many were let in since, the oldest entry is given back in its place.
async fn late_refunds_of_a_busy_log_make_no_wait_too_short(bench: &Bench) {
    let limit = Limit::sliding_log(100, MINUTE);
    for (others, left_then) in [(31, 100 - 31), (32, 100 - 32)] {
        assert!(bench.ask(limit, 1).await.is_allowed());
        bench.advance(SECOND);
        let taken = bench.ask(limit, 1).await;
        bench.advance(SECOND);
        for _ in 0..others {
            assert!(bench.ask(limit, 1).await.is_allowed());
        }
        let refund = Action::Refund {
            permits: 1,
            receipt: taken.receipt(),
        };
        let _ = bench.act(limit, refund).await;
        // The first one has come back; the second one, where it is still there, has not.
        bench.advance(MINUTE - 2 * SECOND);
        let kept = u64::from(others == 32);
        let looked = bench.act(limit, Action::look()).await;
        assert_eq!(looked.remaining(), left_then - kept, "{others}");
        bench.advance(SECOND);
        let looked = bench.act(limit, Action::look()).await;
        assert_eq!(looked.remaining(), left_then, "{others}");
        bench.advance(MINUTE);
    }
}
