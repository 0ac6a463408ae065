//! What the algorithms promise, on every store, and the faults of other systems that ours must not
//! have: each test that excludes one is named after it.

mod support;

use std::time::Duration;

use support::bench::Bench;
use support::on_every_store;
use tower_throttle::{Clock, DAY, HOUR, Limit, MINUTE, Micros, Outcome, SECOND};

on_every_store! {
    exactly_the_burst_is_admitted_at_a_frozen_clock_at_every_rate
    a_rate_that_is_no_whole_number_of_microseconds_is_exact_over_time
    denied_until_retry_after_and_allowed_at_it
    idling_gives_no_permit_too_many
    remaining_counts_down_and_is_what_could_be_taken
    hammering_while_denied_never_pushes_the_reset_away
    a_clock_that_steps_back_never_frees_capacity
    a_cost_above_the_capacity_is_never_and_not_not_yet
    a_lowered_limit_does_not_stumble_over_a_state_above_it
    a_raised_rate_forgives_nothing
    the_largest_limits_and_costs_are_exact

    gcra_burst_of_1000_at_1_us_admits_1000_and_not_1048
    gcra_a_fast_caller_is_refilled_all_the_same

    fixed_window_opens_with_the_first_request
    fixed_window_aligned_ends_at_multiples_of_its_length
    fixed_window_admits_up_to_twice_the_limit_around_a_boundary
    fixed_window_denied_requests_are_not_counted
    fixed_window_made_shorter_ends_earlier_at_once
    fixed_window_shorter_than_a_second_ends_in_time

    sliding_counter_spreads_what_was_used_over_the_next_window
    sliding_counter_is_never_above_its_limit_for_an_even_caller
    sliding_counter_made_longer_forgives_nothing

    sliding_log_never_admits_more_than_the_limit_in_any_window
    sliding_log_permits_of_one_instant_do_not_overwrite_each_other
    sliding_log_a_client_that_keeps_trying_is_let_in_in_time
    sliding_log_counts_only_what_is_within_the_window
    sliding_log_keeps_what_is_within_the_window
    sliding_log_window_of_a_year_does_not_overflow
    sliding_log_a_cost_of_n_occupies_n_permits
}

/// A limit of each algorithm.
fn every_algorithm(limit: u32, window: Duration) -> [Limit; 5] {
    [
        Limit::gcra(limit, window),
        Limit::fixed_window(limit, window),
        Limit::sliding_log(limit, window),
        Limit::sliding_counter(limit, window),
        // The same key as the window before, which by then must not count any more.
        Limit::fixed_window(limit, window).aligned(),
    ]
}

/// From 1 a year to 10 million a second, and those that divide nothing evenly.
const RATES: [(u32, Duration); 10] = [
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

async fn exactly_the_burst_is_admitted_at_a_frozen_clock_at_every_rate(bench: &Bench) {
    for (limit, period) in RATES {
        for burst in [1, 2, 100] {
            let name = format!("burst {burst} of {limit} in {period:?}");
            let gcra = Limit::gcra(limit, period).burst(burst);
            assert_eq!(drain(bench, &name, gcra, 1).await, burst, "{name}");
        }
        // Costs that divide the limit with nothing or something left over.
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

/// How often this cost is had until it is denied.
async fn drain(bench: &Bench, policy: &str, limit: Limit, cost: u32) -> u32 {
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

async fn a_rate_that_is_no_whole_number_of_microseconds_is_exact_over_time(bench: &Bench) {
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

/// Two crates of the field give capacity + 1 after idling.
async fn idling_gives_no_permit_too_many(bench: &Bench) {
    for (permits, window) in [
        (3, SECOND),
        (7, MINUTE),
        (100, Duration::from_micros(7_001)),
    ] {
        for limit in every_algorithm(permits, window) {
            let full = bench.drain(limit, 1).await;
            for idle in [window, 3 * window, 1_000 * window, window + window / 3] {
                bench.advance(idle);
                // The window before counts for a whole window more.
                if limit == Limit::sliding_counter(permits, window) {
                    bench.advance(window);
                }
                if limit == limit.aligned() {
                    bench.align(window);
                }
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

async fn remaining_counts_down_and_is_what_could_be_taken(bench: &Bench) {
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
    bench.advance(2 * HOUR);
    for limit in every_algorithm(3, MINUTE) {
        bench.align(MINUTE);
        bench.drain(limit, 1).await;
        let wait = bench.ask(limit, 1).await.retry_after().unwrap();
        bench.clock.step_back(HOUR);
        let denied = bench.ask(limit, 1).await;
        assert!(!denied.is_allowed(), "{limit:?}");
        // The wait is told by the clock as it is now, and is still exact.
        assert_eq!(denied.retry_after(), Some(wait + HOUR), "{limit:?}");
        bench.advance(wait + HOUR);
        assert!(bench.ask(limit, 1).await.is_allowed(), "{limit:?}");
        bench.advance(2 * MINUTE);
    }
}

async fn a_cost_above_the_capacity_is_never_and_not_not_yet(bench: &Bench) {
    for limit in every_algorithm(5, MINUTE) {
        assert_eq!(bench.ask(limit, 6).await.outcome(), Outcome::NeverFits);
        assert_eq!(
            bench.ask(limit, u32::MAX).await.outcome(),
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
    type Make = fn(u32) -> Limit;
    let makes: [Make; 4] = [
        |limit| Limit::gcra(limit, MINUTE),
        |limit| Limit::fixed_window(limit, MINUTE),
        |limit| Limit::sliding_log(limit, MINUTE),
        |limit| Limit::sliding_counter(limit, MINUTE),
    ];
    for make in makes {
        assert_eq!(bench.drain(make(1_000), 100).await, 1_000);
        let denied = bench.ask(make(2), 1).await;
        assert_eq!((denied.is_allowed(), denied.remaining()), (false, 0));
        bench.advance(denied.retry_after().unwrap());
        assert!(bench.ask(make(2), 1).await.is_allowed());
    }
}

async fn a_raised_rate_forgives_nothing(bench: &Bench) {
    // Between rates with different fractions of a microsecond, the rounding is against the caller.
    let (slow, fast) = (Limit::gcra(3, SECOND), Limit::gcra(7, SECOND));
    bench.ask(slow, 1).await;
    let owed = bench.ask(slow, 0).await.reset_after();
    let under_new = bench.ask(fast, 0).await.reset_after();
    assert_eq!(owed, under_new);

    let log = Limit::sliding_log(2, SECOND);
    bench.drain(log, 1).await;
    let longer = bench.ask(Limit::sliding_log(2, MINUTE), 1).await;
    assert_eq!(longer.retry_after(), Some(MINUTE));
}

async fn the_largest_limits_and_costs_are_exact(bench: &Bench) {
    let most = u32::MAX;
    for limit in every_algorithm(most, 366 * DAY) {
        assert_eq!(bench.ask(limit, most - 1).await.remaining(), 1, "{limit:?}");
        assert!(!bench.ask(limit, 2).await.is_allowed(), "{limit:?}");
        assert_eq!(bench.ask(limit, 1).await.remaining(), 0, "{limit:?}");
        assert!(!bench.ask(limit, 1).await.is_allowed(), "{limit:?}");
        bench.advance(2 * 366 * DAY);
    }
}

async fn gcra_burst_of_1000_at_1_us_admits_1000_and_not_1048(bench: &Bench) {
    let limit = Limit::gcra(1_000_000, SECOND).burst(1_000);
    assert_eq!(bench.drain(limit, 1).await, 1_000);
    bench.advance_us(1);
    assert_eq!(bench.drain(limit, 1).await, 1);
}

/// `floor` on each call starves a caller that asks faster than one permit comes back.
async fn gcra_a_fast_caller_is_refilled_all_the_same(bench: &Bench) {
    let limit = Limit::gcra(3, SECOND);
    bench.drain(limit, 1).await;
    let mut had = 0;
    for _ in 0..1_000 {
        bench.advance(Duration::from_millis(3));
        had += u32::from(bench.ask(limit, 1).await.is_allowed());
    }
    assert_eq!(had, 9, "three a second for three seconds");
}

async fn fixed_window_opens_with_the_first_request(bench: &Bench) {
    let limit = Limit::fixed_window(2, MINUTE);
    bench.align(MINUTE);
    bench.advance(40 * SECOND);
    assert_eq!(bench.ask(limit, 1).await.reset_after(), MINUTE);
    bench.advance(59 * SECOND);
    assert_eq!(bench.ask(limit, 1).await.reset_after(), SECOND);
    assert!(!bench.ask(limit, 1).await.is_allowed());
    bench.advance(SECOND);
    assert_eq!(bench.ask(limit, 1).await.remaining(), 1);
}

async fn fixed_window_aligned_ends_at_multiples_of_its_length(bench: &Bench) {
    let limit = Limit::fixed_window(1, HOUR).aligned();
    bench.align(HOUR);
    bench.advance(50 * MINUTE);
    assert_eq!(bench.ask(limit, 1).await.reset_after(), 10 * MINUTE);
    bench.advance(10 * MINUTE);
    assert_eq!(bench.clock.now().get() % 3_600_000_000, 0);
    assert_eq!(bench.ask(limit, 1).await.reset_after(), HOUR);
}

/// The known property of fixed windows, documented and no more than it.
async fn fixed_window_admits_up_to_twice_the_limit_around_a_boundary(bench: &Bench) {
    let limit = Limit::fixed_window(5, MINUTE).aligned();
    bench.align(MINUTE);
    bench.advance(59 * SECOND);
    let before = bench.drain(limit, 1).await;
    bench.advance(SECOND);
    assert_eq!(before + bench.drain(limit, 1).await, 10);
    assert!(!bench.ask(limit, 1).await.is_allowed());
}

async fn fixed_window_denied_requests_are_not_counted(bench: &Bench) {
    let limit = Limit::fixed_window(5, MINUTE);
    bench.ask(limit, 4).await;
    for _ in 0..10 {
        assert!(!bench.ask(limit, 2).await.is_allowed());
    }
    assert_eq!(bench.ask(limit, 1).await.remaining(), 0);
}

async fn fixed_window_made_shorter_ends_earlier_at_once(bench: &Bench) {
    bench.drain(Limit::fixed_window(5, DAY), 1).await;
    bench.advance(30 * SECOND);
    let shorter = Limit::fixed_window(5, MINUTE);
    let denied = bench.ask(shorter, 1).await;
    assert_eq!(denied.retry_after(), Some(30 * SECOND));
    bench.advance(30 * SECOND);
    assert!(bench.ask(shorter, 1).await.is_allowed());
}

/// A TTL in whole seconds lets a short window live on.
async fn fixed_window_shorter_than_a_second_ends_in_time(bench: &Bench) {
    let limit = Limit::fixed_window(2, Duration::from_millis(10));
    for _ in 0..5 {
        assert_eq!(bench.drain(limit, 1).await, 2);
        bench.advance(Duration::from_millis(10));
    }
}

async fn sliding_counter_spreads_what_was_used_over_the_next_window(bench: &Bench) {
    let limit = Limit::sliding_counter(10, SECOND);
    bench.align(SECOND);
    assert_eq!(bench.drain(limit, 1).await, 10);
    let denied = bench.ask(limit, 1).await;
    // A tenth of the next window must pass until one of ten is out of sight.
    assert_eq!(denied.retry_after(), Some(SECOND + SECOND / 10));
    assert_eq!(denied.reset_after(), 2 * SECOND);
    bench.advance(SECOND);
    for left in 1..=9 {
        bench.advance(SECOND / 10);
        assert_eq!(bench.ask(limit, 0).await.remaining(), left);
    }
    bench.advance(SECOND / 10);
    assert_eq!(bench.ask(limit, 0).await.remaining(), 10);
}

async fn sliding_counter_is_never_above_its_limit_for_an_even_caller(bench: &Bench) {
    let limit = Limit::sliding_counter(10, SECOND);
    let mut admitted: Vec<u64> = Vec::new();
    for _ in 0..300 {
        bench.advance(Duration::from_millis(13));
        if bench.ask(limit, 1).await.is_allowed() {
            admitted.push(bench.clock.now().get());
        }
    }
    let within = |end: u64| {
        let window = end - 999_999..=end;
        admitted.iter().filter(|at| window.contains(at)).count()
    };
    let fullest = admitted.iter().map(|end| within(*end)).max();
    assert!(
        fullest <= Some(10 + 1),
        "a little above at most: {fullest:?}"
    );
    assert!(
        admitted.len() > 30,
        "nearly ten a second: {}",
        admitted.len()
    );
}

async fn sliding_counter_made_longer_forgives_nothing(bench: &Bench) {
    bench.align(MINUTE);
    bench.drain(Limit::sliding_counter(4, SECOND), 1).await;
    let longer = Limit::sliding_counter(4, MINUTE);
    assert_eq!(bench.ask(longer, 0).await.remaining(), 0);
    bench.advance(SECOND / 2);
    assert!(!bench.ask(longer, 1).await.is_allowed());
}

async fn sliding_log_never_admits_more_than_the_limit_in_any_window(bench: &Bench) {
    let limit = Limit::sliding_log(5, SECOND);
    let mut admitted: Vec<u64> = Vec::new();
    // Bursts, trickles and pauses that no window is aligned to.
    for step in 0..400_u64 {
        bench.advance_us(step * 7_919 % 450_000);
        if bench.ask(limit, 1).await.is_allowed() {
            admitted.push(bench.clock.now().get());
        }
    }
    let fullest = admitted
        .iter()
        .map(|start| {
            admitted
                .iter()
                .filter(|at| (*start..start + 1_000_000).contains(at))
                .count()
        })
        .max();
    assert_eq!(
        fullest,
        Some(5),
        "the limit is used in full and never passed"
    );
}

/// With the instant as the member of a sorted set, 10 passed a limit of 5.
async fn sliding_log_permits_of_one_instant_do_not_overwrite_each_other(bench: &Bench) {
    assert_eq!(bench.drain(Limit::sliding_log(5, SECOND), 1).await, 5);
}

/// Adding before checking keeps a client out for as long as it keeps trying.
async fn sliding_log_a_client_that_keeps_trying_is_let_in_in_time(bench: &Bench) {
    let limit = Limit::sliding_log(2, SECOND);
    let mut had = 0;
    for _ in 0..100 {
        had += u32::from(bench.ask(limit, 1).await.is_allowed());
        bench.advance(Duration::from_millis(100));
    }
    assert_eq!(had, 20);
}

/// Counting before trimming counts what is over.
async fn sliding_log_counts_only_what_is_within_the_window(bench: &Bench) {
    let limit = Limit::sliding_log(3, SECOND);
    for _ in 0..20 {
        bench.advance(SECOND / 3 + Duration::from_micros(1));
        assert!(bench.ask(limit, 1).await.is_allowed());
    }
}

/// Trimming the current window instead of what is older admits for ever.
async fn sliding_log_keeps_what_is_within_the_window(bench: &Bench) {
    let limit = Limit::sliding_log(3, MINUTE);
    bench.ask(limit, 1).await;
    bench.advance(30 * SECOND);
    bench.ask(limit, 2).await;
    bench.advance(30 * SECOND);
    assert_eq!(bench.ask(limit, 0).await.remaining(), 1);
    assert_eq!(bench.drain(limit, 1).await, 1);
}

async fn sliding_log_window_of_a_year_does_not_overflow(bench: &Bench) {
    let limit = Limit::sliding_log(1, 366 * DAY);
    bench.ask(limit, 1).await;
    bench.advance(365 * DAY);
    let denied = bench.ask(limit, 1).await;
    assert_eq!(denied.retry_after(), Some(DAY));
    bench.advance(DAY);
    assert!(bench.ask(limit, 1).await.is_allowed());
}

async fn sliding_log_a_cost_of_n_occupies_n_permits(bench: &Bench) {
    let limit = Limit::sliding_log(10, MINUTE);
    bench.ask(limit, 3).await;
    bench.advance(10 * SECOND);
    bench.ask(limit, 4).await;
    bench.advance(10 * SECOND);
    assert_eq!(bench.ask(limit, 3).await.remaining(), 0);
    // Each further permit waits for the entry that gives the last one it needs.
    for (cost, wait) in [(1, 40), (3, 40), (4, 50), (7, 50), (8, 60), (10, 60)] {
        let denied = bench.ask(limit, cost).await;
        assert_eq!(
            denied.retry_after(),
            Some(wait * SECOND),
            "a cost of {cost}"
        );
    }
}
