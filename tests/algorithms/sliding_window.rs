//! Sliding window: never more than a number of permits in any window, counted in slices.

use std::time::Duration;

use tower_throttle::{HOUR, Limit, MINUTE, SECOND};

use crate::credit;
use crate::{admitted_unevenly, in_the_fullest_second};
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    never_admits_more_than_the_limit_in_any_window
    a_permit_comes_back_a_slice_late_at_most
    slices_come_back_one_by_one
    of_one_slice_is_two_aligned_windows
    of_a_thousand_slices_is_nearly_the_log
    another_number_of_slices_forgives_nothing
    denied_requests_are_not_counted
    a_shorter_window_gives_back_nothing_that_has_lapsed_by_it
    a_shorter_window_gives_back_at_most_what_it_counts
    what_a_longer_window_leaves_lapses_by_its_own_length
}

async fn never_admits_more_than_the_limit_in_any_window(bench: &Bench) {
    for slices in [1, 3, 10] {
        let limit = Limit::sliding_window(5, SECOND).slices(slices);
        let admitted = admitted_unevenly(bench, limit).await;
        assert_eq!(
            in_the_fullest_second(&admitted),
            5,
            "the limit is used in full and never passed"
        );
        bench.advance(2 * SECOND);
    }
}

/// The oldest slice counts whole: what was taken in its first moment comes back a slice late.
async fn a_permit_comes_back_a_slice_late_at_most(bench: &Bench) {
    let limit = Limit::sliding_window(5, 10 * SECOND);
    for (into_slice, wait_ms) in [(0, 11_000), (1, 10_999), (999, 10_001)] {
        bench.align(10 * SECOND);
        bench.advance(Duration::from_millis(into_slice));
        assert_eq!(bench.drain(limit, 1).await, 5);
        let wait = bench.ask(limit, 1).await.retry_after();
        assert_eq!(wait, Some(Duration::from_millis(wait_ms)));
        bench.advance(MINUTE);
    }
}

async fn slices_come_back_one_by_one(bench: &Bench) {
    let limit = Limit::sliding_window(10, 10 * SECOND);
    bench.align(10 * SECOND);
    for _ in 0..5 {
        let _ = bench.ask(limit, 2).await;
        bench.advance(SECOND);
    }
    assert_eq!(bench.ask(limit, 0).await.remaining(), 0);
    for (cost, wait) in [(1, 6), (2, 6), (3, 7), (10, 10)] {
        let denied = bench.ask(limit, cost).await;
        assert_eq!(
            denied.retry_after(),
            Some(wait * SECOND),
            "a cost of {cost}"
        );
    }
    bench.advance(6 * SECOND);
    for left in [2, 4, 6, 8, 10] {
        assert_eq!(bench.ask(limit, 0).await.remaining(), left);
        bench.advance(SECOND);
    }
}

async fn of_one_slice_is_two_aligned_windows(bench: &Bench) {
    let limit = Limit::sliding_window(5, MINUTE).slices(1);
    bench.align(MINUTE);
    bench.advance(30 * SECOND);
    let _ = bench.ask(limit, 3).await;
    bench.advance(40 * SECOND);
    assert_eq!(bench.ask(limit, 2).await.remaining(), 0);
    // The first window counts until the second has ended, then the second alone.
    assert_eq!(bench.ask(limit, 1).await.retry_after(), Some(50 * SECOND));
    bench.advance(50 * SECOND);
    assert_eq!(bench.ask(limit, 0).await.remaining(), 3);
    bench.advance(MINUTE);
    assert_eq!(bench.ask(limit, 0).await.remaining(), 5);
}

/// A slice of a microsecond late, which is the resolution of the clock.
async fn of_a_thousand_slices_is_nearly_the_log(bench: &Bench) {
    let millisecond = Duration::from_millis(1);
    let sliced = Limit::sliding_window(3, millisecond).slices(1_000);
    let log = Limit::sliding_log(3, millisecond);
    for step in 0..200_u64 {
        bench.advance_us(step * 7_919 % 451);
        let of_log = bench.ask(log, 0).await.remaining();
        let of_slices = bench.ask(sliced, 0).await.remaining();
        bench.advance_us(1);
        let a_slice_later = bench.ask(sliced, 0).await.remaining();
        assert!((of_slices..=a_slice_later).contains(&of_log));
        if bench.ask(sliced, 1).await.is_allowed() {
            assert!(bench.ask(log, 1).await.is_allowed());
        }
    }
}

async fn another_number_of_slices_forgives_nothing(bench: &Bench) {
    let limit = Limit::sliding_window(4, MINUTE);
    bench.align(MINUTE);
    bench.drain(limit.slices(2), 1).await;
    for slices in [1, 10, 1_000] {
        let denied = bench.ask(limit.slices(slices), 1).await;
        assert_eq!(denied.retry_after(), Some(90 * SECOND), "{slices} slices");
    }
    bench.advance(90 * SECOND);
    assert_eq!(bench.drain(limit.slices(10), 1).await, 4);
}

async fn denied_requests_are_not_counted(bench: &Bench) {
    let limit = Limit::sliding_window(5, MINUTE);
    let _ = bench.ask(limit, 4).await;
    for _ in 0..10 {
        bench.advance(SECOND);
        assert!(!bench.ask(limit, 2).await.is_allowed());
    }
    assert_eq!(bench.ask(limit, 1).await.remaining(), 0);
}

/// Both with slices of six seconds.
fn long_and_short() -> [Limit; 2] {
    [(HOUR, 600), (MINUTE, 10)]
        .map(|(window, slices)| Limit::sliding_window(10, window).slices(slices))
}

async fn a_shorter_window_gives_back_nothing_that_has_lapsed_by_it(bench: &Bench) {
    let [long, short] = long_and_short();
    bench.align(MINUTE);
    let taken = bench.ask(short, 1).await;
    bench.advance(30 * SECOND);
    let _ = bench.ask(long, 3).await;
    bench.advance(36 * SECOND);
    let back = credit(1, taken.receipt().taken_at());
    let _ = bench.act(short, back).await;
    assert_eq!(bench.ask(long, 0).await.remaining(), 6);
    assert_eq!(bench.ask(short, 0).await.remaining(), 7);
}

async fn a_shorter_window_gives_back_at_most_what_it_counts(bench: &Bench) {
    let [long, short] = long_and_short();
    bench.align(MINUTE);
    let _ = bench.ask(long, 2).await;
    bench.advance(40 * SECOND);
    let taken = bench.ask(long, 1).await;
    bench.advance(30 * SECOND);
    let _ = bench.ask(long, 3).await;
    // One was taken then, and the two before it have lapsed by the shorter window.
    let back = credit(2, taken.receipt().taken_at());
    assert_eq!(bench.act(short, back).await.remaining(), 7);
    assert_eq!(bench.ask(long, 0).await.remaining(), 5);
}

async fn what_a_longer_window_leaves_lapses_by_its_own_length(bench: &Bench) {
    let [long, short] = long_and_short();
    bench.align(MINUTE);
    let _ = bench.ask(short, 1).await;
    bench.advance(40 * SECOND);
    let taken = bench.ask(short, 1).await;
    bench.advance(26 * SECOND);
    let back = credit(1, taken.receipt().taken_at());
    let left = bench.act(long, back).await;
    assert_eq!(left.remaining(), 10);
    assert_eq!(left.reset_after(), Duration::ZERO);
}
