//! Sliding counter: an estimate from two counts.

use std::time::Duration;

use tower_throttle::{Clock, DAY, Limit, MINUTE, SECOND};

use crate::in_the_fullest_second;
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    spreads_what_was_used_over_the_next_window
    is_never_above_its_limit_for_an_even_caller
    made_longer_forgives_nothing
    admits_one_less_than_twice_the_limit_at_worst
    made_shorter_says_how_long_it_still_takes
    shares_out_large_counts_to_the_permit
}

async fn spreads_what_was_used_over_the_next_window(bench: &Bench) {
    let limit = Limit::sliding_counter(10, SECOND);
    bench.align(SECOND);
    assert_eq!(bench.drain(limit, 1).await, 10);
    let denied = bench.ask(limit, 1).await;
    // A tenth of the next window must pass until one of ten no longer counts.
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

async fn is_never_above_its_limit_for_an_even_caller(bench: &Bench) {
    let limit = Limit::sliding_counter(10, SECOND);
    let mut admitted: Vec<u64> = Vec::new();
    for _ in 0..300 {
        bench.advance(Duration::from_millis(13));
        if bench.ask(limit, 1).await.is_allowed() {
            admitted.push(bench.clock.now().get());
        }
    }
    let fullest = in_the_fullest_second(&admitted);
    assert!(fullest <= 10 + 1, "a little above at most: {fullest}");
    assert!(
        admitted.len() > 30,
        "nearly ten a second: {}",
        admitted.len()
    );
}

async fn made_longer_forgives_nothing(bench: &Bench) {
    bench.align(MINUTE);
    bench.drain(Limit::sliding_counter(4, SECOND), 1).await;
    let longer = Limit::sliding_counter(4, MINUTE);
    assert_eq!(bench.ask(longer, 0).await.remaining(), 0);
    bench.advance(SECOND / 2);
    assert!(!bench.ask(longer, 1).await.is_allowed());
}

/// The known worst case: everything in the last moment of a window, then one for each permit that
/// no longer counts.
async fn admits_one_less_than_twice_the_limit_at_worst(bench: &Bench) {
    let limit = Limit::sliding_counter(10, SECOND);
    bench.align(SECOND);
    bench.advance(SECOND - Duration::from_micros(1));
    let mut had = bench.drain(limit, 1).await;
    bench.advance_us(1);
    for _ in 0..9 {
        bench.advance(SECOND / 10);
        had += bench.drain(limit, 1).await;
    }
    // Less than a second after the first.
    bench.advance(SECOND / 10 - Duration::from_micros(2));
    had += bench.drain(limit, 1).await;
    assert_eq!(had, 19);
}

/// A denied caller waits by the windows in which permits were counted, and not in vain.
async fn made_shorter_says_how_long_it_still_takes(bench: &Bench) {
    bench.align(MINUTE);
    bench.drain(Limit::sliding_counter(4, MINUTE), 1).await;
    let shorter = Limit::sliding_counter(4, SECOND);
    bench.advance(20 * SECOND);
    let wait = bench.ask(shorter, 1).await.retry_after().unwrap();
    assert_eq!(wait, 40 * SECOND + MINUTE / 4);
    bench.advance(wait - Duration::from_micros(1));
    assert!(!bench.ask(shorter, 1).await.is_allowed());
    bench.advance_us(1);
    assert!(bench.ask(shorter, 1).await.is_allowed());
    bench.advance(2 * SECOND);
    assert_eq!(bench.ask(shorter, 0).await.remaining(), 4);
}

/// The scripts compute the share digit by digit. Just below the point where one more digit is needed,
/// it comes from the previous ones alone.
async fn shares_out_large_counts_to_the_permit(bench: &Bench) {
    let window = 300 * DAY;
    let counts = [14, 21, 28, 35, 42, 49].map(|bits| (1_u64 << bits) - 1);
    for count in counts.into_iter().chain([999_999_999_999_999]) {
        let limit = Limit::sliding_counter(count, window);
        bench.align(window);
        assert!(bench.ask(limit, count).await.is_allowed());
        bench.advance(window + window / 2);
        // Half of them count, rounded up.
        let left = bench.ask(limit, 0).await.remaining();
        assert_eq!(left, count / 2);
        bench.advance(window);
    }
}
