//! Fixed window: a number of permits in each window.

use std::time::Duration;

use tower_throttle::{Clock, DAY, HOUR, Limit, MINUTE, SECOND};

use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    opens_with_the_first_request
    aligned_ends_at_multiples_of_its_length
    admits_up_to_twice_the_limit_around_a_boundary
    denied_requests_are_not_counted
    made_shorter_ends_earlier_at_once
    shorter_than_a_second_ends_in_time
}

async fn opens_with_the_first_request(bench: &Bench) {
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

async fn aligned_ends_at_multiples_of_its_length(bench: &Bench) {
    let limit = Limit::fixed_window(1, HOUR).aligned();
    bench.align(HOUR);
    bench.advance(50 * MINUTE);
    assert_eq!(bench.ask(limit, 1).await.reset_after(), 10 * MINUTE);
    bench.advance(10 * MINUTE);
    assert_eq!(bench.clock.now().get() % 3_600_000_000, 0);
    assert_eq!(bench.ask(limit, 1).await.reset_after(), HOUR);
}

/// The known property of fixed windows, no worse than documented.
async fn admits_up_to_twice_the_limit_around_a_boundary(bench: &Bench) {
    let limit = Limit::fixed_window(5, MINUTE).aligned();
    bench.align(MINUTE);
    bench.advance(59 * SECOND);
    let before = bench.drain(limit, 1).await;
    bench.advance(SECOND);
    assert_eq!(before + bench.drain(limit, 1).await, 10);
    assert!(!bench.ask(limit, 1).await.is_allowed());
}

async fn denied_requests_are_not_counted(bench: &Bench) {
    let limit = Limit::fixed_window(5, MINUTE);
    let _ = bench.ask(limit, 4).await;
    for _ in 0..10 {
        assert!(!bench.ask(limit, 2).await.is_allowed());
    }
    assert_eq!(bench.ask(limit, 1).await.remaining(), 0);
}

async fn made_shorter_ends_earlier_at_once(bench: &Bench) {
    bench.drain(Limit::fixed_window(5, DAY), 1).await;
    bench.advance(30 * SECOND);
    let shorter = Limit::fixed_window(5, MINUTE);
    let denied = bench.ask(shorter, 1).await;
    assert_eq!(denied.retry_after(), Some(30 * SECOND));
    bench.advance(30 * SECOND);
    assert!(bench.ask(shorter, 1).await.is_allowed());
}

/// A TTL in whole seconds would let a short window live on.
async fn shorter_than_a_second_ends_in_time(bench: &Bench) {
    let limit = Limit::fixed_window(2, Duration::from_millis(10));
    for _ in 0..5 {
        assert_eq!(bench.drain(limit, 1).await, 2);
        bench.advance(Duration::from_millis(10));
    }
}
