//! Sliding log: never more than a number of permits in any window.

use std::time::Duration;

use tower_throttle::{DAY, HOUR, Limit, MINUTE, SECOND};

use crate::credit;
use crate::{admitted_unevenly, in_the_fullest_second};
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    never_admits_more_than_the_limit_in_any_window
    permits_of_one_instant_do_not_overwrite_each_other
    a_client_that_keeps_trying_is_let_in_in_time
    counts_only_what_is_within_the_window
    keeps_what_is_within_the_window
    window_of_a_year_does_not_overflow
    a_cost_of_n_occupies_n_permits
    a_longer_window_credits_nothing_that_a_shorter_one_counts
    a_shorter_window_gives_back_only_what_it_counts
    a_shorter_window_gives_back_the_oldest_if_unknown_which
    a_shorter_window_gives_back_nothing_that_has_lapsed_by_it
    what_a_longer_window_leaves_lapses_by_its_own_length
    crediting_the_newest_entry_may_make_more_count
    the_newest_32_permits_are_known_by_their_instant
}

async fn never_admits_more_than_the_limit_in_any_window(bench: &Bench) {
    let admitted = admitted_unevenly(bench, Limit::sliding_log(5, SECOND)).await;
    assert_eq!(
        in_the_fullest_second(&admitted),
        5,
        "the limit is used in full and never passed"
    );
}

/// With the instant as the member of a sorted set, 10 would pass a limit of 5.
async fn permits_of_one_instant_do_not_overwrite_each_other(bench: &Bench) {
    assert_eq!(bench.drain(Limit::sliding_log(5, SECOND), 1).await, 5);
}

/// Adding before checking would keep a client out for as long as it keeps trying.
async fn a_client_that_keeps_trying_is_let_in_in_time(bench: &Bench) {
    let limit = Limit::sliding_log(2, SECOND);
    let mut had = 0;
    for _ in 0..100 {
        had += u64::from(bench.ask(limit, 1).await.is_allowed());
        bench.advance(Duration::from_millis(100));
    }
    assert_eq!(had, 20);
}

/// Counting before trimming would count what is over.
async fn counts_only_what_is_within_the_window(bench: &Bench) {
    let limit = Limit::sliding_log(3, SECOND);
    for _ in 0..20 {
        bench.advance(SECOND / 3 + Duration::from_micros(1));
        assert!(bench.ask(limit, 1).await.is_allowed());
    }
}

/// Trimming the current window instead of older entries would admit for ever.
async fn keeps_what_is_within_the_window(bench: &Bench) {
    let limit = Limit::sliding_log(3, MINUTE);
    let _ = bench.ask(limit, 1).await;
    bench.advance(30 * SECOND);
    let _ = bench.ask(limit, 2).await;
    bench.advance(30 * SECOND);
    assert_eq!(bench.ask(limit, 0).await.remaining(), 1);
    assert_eq!(bench.drain(limit, 1).await, 1);
}

async fn window_of_a_year_does_not_overflow(bench: &Bench) {
    let limit = Limit::sliding_log(1, 366 * DAY);
    let _ = bench.ask(limit, 1).await;
    bench.advance(365 * DAY);
    let denied = bench.ask(limit, 1).await;
    assert_eq!(denied.retry_after(), Some(DAY));
    bench.advance(DAY);
    assert!(bench.ask(limit, 1).await.is_allowed());
}

async fn a_cost_of_n_occupies_n_permits(bench: &Bench) {
    let limit = Limit::sliding_log(10, MINUTE);
    let _ = bench.ask(limit, 3).await;
    bench.advance(10 * SECOND);
    let _ = bench.ask(limit, 4).await;
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

/// It is not known when they were taken: the oldest are given back, and one of those counts only by
/// the longer window.
async fn a_longer_window_credits_nothing_that_a_shorter_one_counts(bench: &Bench) {
    let [long, short] = [HOUR, MINUTE].map(|window| Limit::sliding_log(10, window));
    let _ = bench.ask(long, 1).await;
    bench.advance(40 * SECOND);
    let _ = bench.ask(short, 3).await;
    bench.advance(30 * SECOND);
    let _ = bench.act(long, credit(1, None)).await;
    assert_eq!(bench.ask(short, 0).await.remaining(), 7);
}

async fn a_shorter_window_gives_back_only_what_it_counts(bench: &Bench) {
    let [long, short] = [HOUR, MINUTE].map(|window| Limit::sliding_log(10, window));
    let _ = bench.ask(long, 1).await;
    bench.advance(2 * MINUTE);
    let taken = bench.ask(long, 3).await;
    bench.advance(SECOND);
    let left = bench
        .act(short, credit(3, taken.receipt().taken_at()))
        .await;
    assert_eq!(left.remaining(), 10);
    assert_eq!(left.reset_after(), Duration::ZERO);
    assert_eq!(bench.ask(long, 0).await.remaining(), 9);
}

async fn a_shorter_window_gives_back_the_oldest_if_unknown_which(bench: &Bench) {
    let [long, short] = [HOUR, MINUTE].map(|window| Limit::sliding_log(10, window));
    let _ = bench.ask(long, 2).await;
    bench.advance(2 * MINUTE);
    let _ = bench.ask(long, 3).await;
    assert_eq!(bench.act(short, credit(1, None)).await.remaining(), 7);
    assert_eq!(bench.ask(long, 0).await.remaining(), 6);
    assert_eq!(bench.ask(short, 0).await.remaining(), 7);
}

async fn a_shorter_window_gives_back_nothing_that_has_lapsed_by_it(bench: &Bench) {
    let [long, short] = [HOUR, MINUTE].map(|window| Limit::sliding_log(10, window));
    let taken = bench.ask(short, 1).await;
    bench.advance(30 * SECOND);
    let _ = bench.ask(long, 3).await;
    bench.advance(30 * SECOND);
    let _ = bench
        .act(short, credit(1, taken.receipt().taken_at()))
        .await;
    assert_eq!(bench.ask(long, 0).await.remaining(), 6);
}

async fn what_a_longer_window_leaves_lapses_by_its_own_length(bench: &Bench) {
    let [long, short] = [HOUR, MINUTE].map(|window| Limit::sliding_log(10, window));
    let _ = bench.ask(short, 1).await;
    bench.advance(40 * SECOND);
    let taken = bench.ask(short, 1).await;
    bench.advance(20 * SECOND);
    let left = bench.act(long, credit(1, taken.receipt().taken_at())).await;
    assert_eq!(left.remaining(), 10);
    assert_eq!(left.reset_after(), Duration::ZERO);
}

async fn crediting_the_newest_entry_may_make_more_count(bench: &Bench) {
    let [long, short] = [HOUR, MINUTE].map(|window| Limit::sliding_log(10, window));
    let _ = bench.ask(long, 2).await;
    bench.advance(2 * MINUTE);
    let taken = bench.ask(long, 3).await;
    assert_eq!(bench.ask(short, 0).await.remaining(), 7);
    bench.clock.step_back(2 * MINUTE - SECOND);
    let left = bench
        .act(short, credit(3, taken.receipt().taken_at()))
        .await;
    assert_eq!(left.remaining(), 8);
    assert_eq!(bench.ask(short, 0).await.remaining(), 8);
}

/// Behind more others the oldest are given back in their place.
async fn the_newest_32_permits_are_known_by_their_instant(bench: &Bench) {
    let limit = Limit::sliding_log(100, MINUTE);
    for (others, is_known) in [(31, true), (32, false)] {
        let _ = bench.ask(limit, 1).await;
        bench.advance(30 * SECOND);
        let taken = bench.ask(limit, 1).await;
        for _ in 0..others {
            bench.advance(Duration::from_micros(1));
            let _ = bench.ask(limit, 1).await;
        }
        let left = bench
            .act(limit, credit(1, taken.receipt().taken_at()))
            .await
            .remaining();
        assert_eq!(left, 100 - others - 1);
        // By then the oldest has lapsed.
        bench.advance(30 * SECOND);
        let later = bench.ask(limit, 0).await.remaining();
        assert_eq!(later > left, is_known, "{others} others");
        bench.advance(MINUTE);
    }
}
