//! Leaky bucket: one after the other, or as a meter.

use std::time::Duration;

use tower_throttle::{Clock, HOUR, Limit, MINUTE, Outcome, SECOND, per_minute, per_second};

use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    a_queue_paces_requests_evenly
    a_queue_lets_no_two_leave_at_once
    a_queue_delays_a_request_by_the_cost_of_earlier_ones
    a_queue_that_has_run_out_holds_nobody_up
    a_meter_lets_in_at_once_what_fits
    a_queue_made_a_meter_keeps_its_water
    the_capacity_is_not_frozen_at_the_first_request
    the_rate_is_not_frozen_at_the_first_request
    the_first_request_is_held_to_the_capacity
    it_leaks_the_same_whether_or_not_it_is_asked_meanwhile
    a_full_bucket_is_empty_again_in_time
}

async fn a_queue_paces_requests_evenly(bench: &Bench) {
    let limit = Limit::leaky_bucket(5, per_second(10));
    for position in 0..5_u32 {
        let decision = bench.ask(limit, 1).await;
        assert_eq!(decision.delay(), position * SECOND / 10);
        assert_eq!(decision.remaining(), 4 - u64::from(position));
    }
    // The sixth would overflow, until one has run out.
    let denied = bench.ask(limit, 1).await;
    assert_eq!(denied.retry_after(), Some(SECOND / 10));
    bench.advance(SECOND / 10);
    assert_eq!(bench.ask(limit, 1).await.delay(), 4 * SECOND / 10);
}

async fn a_queue_lets_no_two_leave_at_once(bench: &Bench) {
    let limit = Limit::leaky_bucket(8, per_second(10));
    let mut left: Vec<u64> = Vec::new();
    let mut denied = 0;
    for step in 0..400_u64 {
        bench.advance_us(step * 7_919 % 150_000);
        let decision = bench.ask(limit, 1).await;
        if decision.is_allowed() {
            let delay = decision.delay().as_micros() as u64;
            left.push(bench.clock.now().get() + delay);
        } else {
            denied += 1;
        }
    }
    assert!(denied > 0 && left.len() > 200, "{denied} {}", left.len());
    for pair in left.windows(2) {
        assert!(pair[1] - pair[0] >= 100_000, "{pair:?}");
    }
}

/// After a request with a high cost, the next one waits for as long as that takes.
async fn a_queue_delays_a_request_by_the_cost_of_earlier_ones(bench: &Bench) {
    let limit = Limit::leaky_bucket(10, per_second(1));
    for (cost, delay) in [(1, 0), (4, 1), (2, 5), (3, 7)] {
        assert_eq!(bench.ask(limit, cost).await.delay(), delay * SECOND);
    }
}

async fn a_queue_that_has_run_out_holds_nobody_up(bench: &Bench) {
    let limit = Limit::leaky_bucket(5, per_second(10));
    for _ in 0..10 {
        assert_eq!(bench.ask(limit, 1).await.delay(), Duration::ZERO);
        bench.advance(SECOND / 10);
    }
}

async fn a_meter_lets_in_at_once_what_fits(bench: &Bench) {
    let limit = Limit::leaky_bucket(5, per_second(10)).without_delay();
    for left in (0..5).rev() {
        let decision = bench.ask(limit, 1).await;
        assert_eq!(
            (decision.delay(), decision.remaining()),
            (Duration::ZERO, left)
        );
    }
    assert_eq!(bench.ask(limit, 1).await.retry_after(), Some(SECOND / 10));
}

async fn a_queue_made_a_meter_keeps_its_water(bench: &Bench) {
    let queue = Limit::leaky_bucket(3, per_second(1));
    let _ = bench.ask(queue, 2).await;
    let meter = queue.without_delay();
    let decision = bench.ask(meter, 1).await;
    assert_eq!(
        (decision.delay(), decision.remaining()),
        (Duration::ZERO, 0)
    );
    assert!(!bench.ask(queue, 1).await.is_allowed());
}

/// A capacity that is stored with the first request would outlive every change of the
/// configuration.
async fn the_capacity_is_not_frozen_at_the_first_request(bench: &Bench) {
    for limit in [
        |capacity| Limit::leaky_bucket(capacity, per_second(1)),
        |capacity| Limit::leaky_bucket(capacity, per_second(1)).without_delay(),
    ] {
        assert_eq!(bench.drain(limit(2), 1).await, 2);
        assert_eq!(bench.drain(limit(5), 1).await, 3);
        assert_eq!(bench.ask(limit(1), 1).await.retry_after(), Some(5 * SECOND));
        assert_eq!(bench.ask(limit(1), 2).await.outcome(), Outcome::NeverFits);
        bench.advance(MINUTE);
    }
}

async fn the_rate_is_not_frozen_at_the_first_request(bench: &Bench) {
    let _ = bench.ask(Limit::leaky_bucket(3, per_second(1)), 1).await;
    let slower = Limit::leaky_bucket(3, per_minute(1));
    // A second of the first, then a minute for each of these.
    assert_eq!(bench.ask(slower, 1).await.delay(), SECOND);
    assert_eq!(bench.ask(slower, 1).await.delay(), SECOND + MINUTE);
    assert_eq!(
        bench.ask(slower, 0).await.reset_after(),
        SECOND + 2 * MINUTE
    );
}

/// The request that creates the bucket must fit it, too.
async fn the_first_request_is_held_to_the_capacity(bench: &Bench) {
    for limit in [
        Limit::leaky_bucket(5, per_second(1)),
        Limit::leaky_bucket(5, per_second(1)).without_delay(),
    ] {
        assert_eq!(bench.ask(limit, 6).await.outcome(), Outcome::NeverFits);
        assert_eq!(bench.stored(), 0);
    }
    assert!(
        bench
            .ask(Limit::leaky_bucket(5, per_second(1)), 5)
            .await
            .is_allowed()
    );
}

/// If a denial stores the instant but not the water, the bucket leaks twice or never.
async fn it_leaks_the_same_whether_or_not_it_is_asked_meanwhile(bench: &Bench) {
    let limit = Limit::leaky_bucket(3, per_second(3)).without_delay();
    let key = |key, cost| [("policy", limit, key, cost)];
    for name in ["asked", "left alone"] {
        bench.ask_all(&key(name, 3)).await;
    }
    for _ in 0..33 {
        bench.advance(Duration::from_millis(10));
        assert!(!bench.ask_all(&key("asked", 1)).await.all_allow());
    }
    bench.advance_us(3_333);
    assert!(!bench.ask_all(&key("asked", 1)).await.all_allow());
    bench.advance_us(1);
    for name in ["asked", "left alone"] {
        assert_eq!(
            bench.ask_all(&key(name, 1)).await[0].remaining(),
            0,
            "{name}"
        );
    }
}

/// A bucket without a time to live would block a client for ever once it was full.
async fn a_full_bucket_is_empty_again_in_time(bench: &Bench) {
    let limit = Limit::leaky_bucket(60, per_minute(1));
    bench.drain(limit, 1).await;
    assert_eq!(bench.ask(limit, 0).await.reset_after(), HOUR);
    bench.advance(HOUR);
    let decision = bench.ask(limit, 60).await;
    assert_eq!(
        (decision.is_allowed(), decision.delay()),
        (true, Duration::ZERO)
    );
}
