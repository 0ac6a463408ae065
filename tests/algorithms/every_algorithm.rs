//! What every algorithm promises.

use std::time::Duration;

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{Clock, DAY, HOUR, Limit, MINUTE, Micros, Outcome, Rate, SECOND, per_minute};

use crate::{RATES, every_algorithm};
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    frozen_clock_admits_exactly_the_burst_at_every_rate
    a_rate_of_no_whole_microseconds_is_exact_over_time
    denied_until_retry_after_and_allowed_at_it
    last_permit_reports_exactly_when_the_next_comes_back
    idling_gives_no_permit_too_many
    remaining_counts_down_and_can_be_acquired
    final_acquires_report_the_same_reset
    hammering_while_denied_never_pushes_the_reset_away
    a_clock_that_steps_back_never_frees_capacity
    a_clock_that_was_ahead_denies_for_two_windows_at_most
    a_cost_above_the_capacity_is_never_and_not_not_yet
    a_lowered_limit_does_not_stumble_over_a_state_above_it
    a_raised_rate_forgives_nothing
    the_largest_limits_and_costs_are_exact
}

async fn frozen_clock_admits_exactly_the_burst_at_every_rate(bench: &Bench) {
    for (limit, period) in RATES {
        for burst in [1, 2, 100] {
            let name = format!("burst {burst} of {limit} in {period:?}");
            let rate = Rate::new(limit, period);
            for bucket in [
                Limit::gcra(limit, period).burst(burst),
                Limit::token_bucket(burst, rate),
                Limit::leaky_bucket(burst, rate),
            ] {
                assert_eq!(drain(bench, &name, bucket, 1).await, burst, "{bucket:?}");
            }
        }
        // Costs that divide the limit with and without a remainder.
        for cost in [limit, limit.div_ceil(2), limit / 3 + 1] {
            let name = format!("cost {cost} of {limit} in {period:?}");
            for limited in every_algorithm(limit, period) {
                let had = drain(bench, &name, limited, cost).await;
                assert_eq!(had, limit / cost, "{limited:?} at a cost of {cost}");
                bench.advance(2 * period);
            }
        }
    }
}

/// How often this cost is allowed until it is denied.
async fn drain(bench: &Bench, policy: &str, limit: Limit, cost: u64) -> u64 {
    let mut had = 0;
    while bench
        .ask_all(&[(policy, limit, "key", cost)])
        .await
        .all_allow()
    {
        had += 1;
    }
    had
}

async fn a_rate_of_no_whole_microseconds_is_exact_over_time(bench: &Bench) {
    for (limit, period) in [(3, SECOND), (7, MINUTE), (11, Duration::from_micros(7_001))] {
        let gcra = Limit::gcra(limit, period).burst(2);
        let start = bench.clock.now();
        assert_eq!(bench.drain(gcra, 1).await, 2);
        for _ in 0..5 * limit {
            let wait = bench.ask(gcra, 1).await.retry_after().unwrap();
            bench.advance(wait);
            assert!(bench.ask(gcra, 1).await.is_allowed());
        }
        // Each wait is rounded up, but the fraction is kept: after five periods nothing is lost.
        let elapsed = bench.clock.now().saturating_sub(start);
        assert_eq!(elapsed, Micros::from(5 * period), "{gcra:?}");
        bench.advance(2 * period);
    }
}

async fn denied_until_retry_after_and_allowed_at_it(bench: &Bench) {
    for (limit, window) in [
        (1, Duration::from_millis(1)),
        (3, SECOND),
        (7, MINUTE),
        (5, DAY),
    ] {
        for limit in every_algorithm(limit, window) {
            bench.align(window);
            for cost in [1, 2, 3] {
                bench.advance(window / 7);
                bench.drain(limit, cost).await;
                let denied = bench.ask(limit, cost).await;
                let Some(wait) = denied.retry_after() else {
                    assert_eq!(denied.outcome(), Outcome::NeverFits);
                    continue;
                };
                bench.advance(wait - Duration::from_micros(1));
                let early = bench.ask(limit, cost).await;
                assert_eq!(
                    early.retry_after(),
                    Some(Duration::from_micros(1)),
                    "{limit:?}"
                );
                bench.advance_us(1);
                assert!(bench.ask(limit, cost).await.is_allowed(), "{limit:?}");
            }
            bench.advance(2 * window);
        }
    }
}

/// Also when the last of them are taken at once, which a script decides as one sum, and when a take or a
/// denial is of several.
async fn last_permit_reports_exactly_when_the_next_comes_back(bench: &Bench) {
    let (permits, window) = (12, 12 * MINUTE);
    for limit in every_algorithm(permits, window) {
        // Places of a concurrency limit come back when their holders end.
        if limit == Limit::concurrency(permits).lease(window) {
            continue;
        }
        for (costs, pause) in [
            (vec![1], MINUTE / 7),
            (vec![3, 1, 2], MINUTE / 3),
            (vec![4, 2], Duration::ZERO),
        ] {
            bench.align(window);
            bench.advance(MINUTE);
            let mut left = permits;
            for cost in costs.iter().cycle() {
                let cost = left.min(*cost);
                let decision = bench.ask(limit, cost).await;
                assert!(decision.is_allowed());
                left = decision.remaining();
                let is_told = decision.next_permit_after() > Duration::ZERO;
                assert_eq!(is_told, left == 0, "{limit:?}");
                if left == 0 {
                    break;
                }
                bench.advance(pause);
            }
            let next = bench.ask(limit, 0).await.next_permit_after();
            let denied = bench.ask(limit, 2).await;
            assert_eq!(denied.next_permit_after(), next, "{limit:?}");
            bench.advance(next - Duration::from_micros(1));
            let early = bench.ask(limit, 1).await;
            assert_eq!(early.retry_after(), Some(Duration::from_micros(1)));
            bench.advance_us(1);
            assert!(bench.ask(limit, 1).await.is_allowed(), "{limit:?}");
            bench.advance(3 * window);
        }
    }
}

/// Two other crates give capacity + 1 after idling.
async fn idling_gives_no_permit_too_many(bench: &Bench) {
    for (permits, window) in [
        (3, SECOND),
        (7, MINUTE),
        (100, Duration::from_micros(7_001)),
    ] {
        for limit in every_algorithm(permits, window) {
            let full = bench.drain(limit, 1).await;
            for idle in [window, 3 * window, 1_000 * window, window + window / 3] {
                // What sliding windows have counted lasts for longer than a window.
                let reset = bench.ask(limit, 0).await.reset_after();
                bench.advance(idle.max(reset));
                assert_eq!(
                    bench.drain(limit, 1).await,
                    full,
                    "{limit:?} idle for {idle:?}"
                );
            }
            bench.advance(2 * window);
        }
    }
}

/// `check` takes for good, and nobody needs the instant.
async fn final_acquires_report_the_same_reset(bench: &Bench) {
    for limit in every_algorithm(10, 10 * SECOND) {
        for into_window in [0, 1, 900, 9_999] {
            bench.align(10 * SECOND);
            bench.advance(Duration::from_millis(into_window));
            for action in [Action::consume(1), Action::acquire(1), Action::consume(2)] {
                let told = bench.act(limit, action).await;
                let seen = bench.ask(limit, 0).await;
                assert_eq!(told.reset_after(), seen.reset_after(), "{limit:?}");
            }
            bench.advance(MINUTE);
        }
    }
}

async fn remaining_counts_down_and_can_be_acquired(bench: &Bench) {
    for limit in every_algorithm(6, MINUTE) {
        for left in (0..6).rev() {
            assert_eq!(bench.ask(limit, 1).await.remaining(), left, "{limit:?}");
            let too_many = bench.ask(limit, left + 1).await;
            assert!(!too_many.is_allowed(), "{limit:?}");
            assert_eq!(too_many.remaining(), left, "{limit:?}");
        }
        bench.advance(2 * MINUTE);
        let left = bench.ask(limit, 1).await.remaining();
        assert!(bench.ask(limit, left).await.is_allowed(), "{limit:?}");
        bench.advance(2 * MINUTE);
    }
}

async fn hammering_while_denied_never_pushes_the_reset_away(bench: &Bench) {
    for limit in every_algorithm(3, MINUTE) {
        bench.align(MINUTE);
        bench.drain(limit, 1).await;
        let denied = bench.ask(limit, 1).await;
        let (wait, reset) = (denied.retry_after().unwrap(), denied.reset_after());
        for second in 1..10 {
            bench.advance(SECOND);
            for _ in 0..5 {
                let denied = bench.ask(limit, 1).await;
                assert_eq!(
                    denied.retry_after(),
                    Some(wait - second * SECOND),
                    "{limit:?}"
                );
                assert_eq!(denied.reset_after(), reset - second * SECOND, "{limit:?}");
            }
        }
        bench.advance(2 * MINUTE);
    }
}

async fn a_clock_that_steps_back_never_frees_capacity(bench: &Bench) {
    // Room to step back in.
    bench.advance(20 * HOUR);
    for limit in every_algorithm(3, MINUTE) {
        for step in [Duration::from_micros(1), 30 * SECOND, HOUR] {
            bench.align(MINUTE);
            bench.drain(limit, 1).await;
            let wait = bench.ask(limit, 1).await.retry_after().unwrap();
            bench.clock.step_back(step);
            let denied = bench.ask(limit, 1).await;
            assert!(!denied.is_allowed(), "{limit:?}");
            // The wait is relative to the clock as it is now, and is still exact.
            let told = denied.retry_after().unwrap();
            let is_debt = can_wait(limit);
            if step < MINUTE || is_debt {
                assert_eq!(told, wait + step, "{limit:?}");
            } else {
                assert!(told <= 2 * MINUTE, "{limit:?}: {told:?}");
            }
            bench.advance(told - Duration::from_micros(1));
            let early = bench.ask(limit, 1).await.retry_after();
            assert_eq!(early, Some(Duration::from_micros(1)), "{limit:?}");
            bench.advance_us(1);
            assert!(bench.ask(limit, 1).await.is_allowed(), "{limit:?}");
            bench.advance(3 * MINUTE);
        }
    }
}

/// Whether it counts in debt.
fn can_wait(limit: Limit) -> bool {
    Algorithm::try_from(&limit).unwrap().can_wait()
}

/// A denial writes what makes its wait come true, and so does what is taken.
async fn a_clock_that_was_ahead_denies_for_two_windows_at_most(bench: &Bench) {
    bench.advance(20 * HOUR);
    for limit in every_algorithm(3, MINUTE) {
        if can_wait(limit) {
            continue;
        }
        bench.align(MINUTE);
        assert!(bench.ask(limit, 2).await.is_allowed());
        bench.clock.step_back(HOUR);
        // What fits is taken beside what was, and both come back.
        assert_eq!(bench.ask(limit, 1).await.remaining(), 0, "{limit:?}");
        bench.advance(2 * MINUTE);
        assert_eq!(bench.ask(limit, 3).await.remaining(), 0, "{limit:?}");
        bench.clock.step_back(HOUR);
        let both = [("policy", limit, "key", 3), ("other", limit, "key", 1)];
        let mut waited = Duration::ZERO;
        while !bench.ask_all(&both).await.all_allow() {
            bench.advance(5 * SECOND);
            waited += 5 * SECOND;
            assert!(waited <= 2 * MINUTE, "{limit:?}");
        }
        bench.advance(3 * MINUTE);
    }
}

async fn a_cost_above_the_capacity_is_never_and_not_not_yet(bench: &Bench) {
    for limit in every_algorithm(5, MINUTE) {
        assert_eq!(bench.ask(limit, 6).await.outcome(), Outcome::NeverFits);
        assert_eq!(
            bench.ask(limit, u64::MAX).await.outcome(),
            Outcome::NeverFits
        );
        assert!(bench.ask(limit, 1).await.is_allowed());
        let not_yet = bench.ask(limit, 5).await;
        assert_eq!(not_yet.outcome(), Outcome::Denied);
        assert!(not_yet.retry_after().is_some());
        assert_eq!(bench.ask(limit, 6).await.retry_after(), None);
        bench.advance(2 * MINUTE);
    }
}

async fn a_lowered_limit_does_not_stumble_over_a_state_above_it(bench: &Bench) {
    type Make = fn(u64) -> Limit;
    let makes: [Make; 9] = [
        |limit| Limit::gcra(limit, MINUTE),
        |limit| Limit::token_bucket(limit, per_minute(limit)),
        |limit| Limit::leaky_bucket(limit, per_minute(limit)),
        |limit| Limit::fixed_window(limit, MINUTE),
        |limit| Limit::sliding_log(limit, MINUTE),
        |limit| Limit::sliding_window(limit, MINUTE),
        |limit| Limit::sliding_counter(limit, MINUTE),
        |limit| Limit::concurrency(limit).lease(MINUTE),
        |limit| Limit::leaky_bucket(limit, per_minute(limit)).without_delay(),
    ];
    for make in makes {
        assert_eq!(bench.drain(make(1_000), 100).await, 1_000);
        let denied = bench.ask(make(2), 1).await;
        assert_eq!((denied.is_allowed(), denied.remaining()), (false, 0));
        bench.advance(denied.retry_after().unwrap());
        assert!(bench.ask(make(2), 1).await.is_allowed());
        bench.advance(2 * MINUTE);
    }
}

async fn a_raised_rate_forgives_nothing(bench: &Bench) {
    // Between rates with different fractions of a microsecond, rounding is against the caller.
    let (slow, fast) = (Limit::gcra(3, SECOND), Limit::gcra(7, SECOND));
    let _ = bench.ask(slow, 1).await;
    let owed = bench.ask(slow, 0).await.reset_after();
    let under_new = bench.ask(fast, 0).await.reset_after();
    assert_eq!(owed, under_new);

    let log = Limit::sliding_log(2, SECOND);
    bench.drain(log, 1).await;
    let longer = Limit::sliding_log(2, MINUTE);
    bench.advance(SECOND / 2);
    // What was taken is kept for as long as it was taken for.
    let denied = bench.ask(longer, 1).await;
    assert_eq!(denied.retry_after(), Some(SECOND / 2));
    bench.advance(SECOND / 2);
    assert!(bench.ask(longer, 2).await.is_allowed());
    assert_eq!(bench.ask(longer, 1).await.retry_after(), Some(MINUTE));
}

async fn the_largest_limits_and_costs_are_exact(bench: &Bench) {
    let most = 999_999_999_999_999;
    for limit in every_algorithm(most, 366 * DAY) {
        assert_eq!(bench.ask(limit, most - 1).await.remaining(), 1, "{limit:?}");
        assert!(!bench.ask(limit, 2).await.is_allowed(), "{limit:?}");
        assert_eq!(bench.ask(limit, 1).await.remaining(), 0, "{limit:?}");
        assert!(!bench.ask(limit, 1).await.is_allowed(), "{limit:?}");
        bench.advance(2 * 366 * DAY);
    }
}
