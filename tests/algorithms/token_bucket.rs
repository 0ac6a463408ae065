//! Token bucket: a number of permits at once, refilled at a rate.

use std::time::Duration;

use tower_throttle::{DAY, Limit, MINUTE, Outcome, Rate, SECOND, per_minute, per_second};

use crate::had_by_a_fast_caller;
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    allows_while_there_are_tokens_and_then_denies
    takes_what_a_request_costs_and_not_one
    judges_by_the_tokens_that_have_come_in_by_now
    a_fast_caller_is_refilled_all_the_same
    no_fraction_of_a_token_is_lost_or_invented
    a_refill_of_days_is_not_cut_short
    burst_of_1000_at_1_us_admits_1000_and_not_1048
    idling_fills_it_to_the_brim_and_no_further
    a_bucket_is_one_key
}

/// An inverted verdict would deny while there are tokens, and allow when there are none.
async fn allows_while_there_are_tokens_and_then_denies(bench: &Bench) {
    let limit = Limit::token_bucket(3, per_second(1));
    for allows in [true, true, true, false, false] {
        assert_eq!(bench.ask(limit, 1).await.is_allowed(), allows);
    }
}

async fn takes_what_a_request_costs_and_not_one(bench: &Bench) {
    let limit = Limit::token_bucket(10, per_minute(1));
    assert_eq!(bench.ask(limit, 4).await.remaining(), 6);
    let denied = bench.ask(limit, 7).await;
    assert_eq!((denied.outcome(), denied.remaining()), (Outcome::Denied, 6));
    assert_eq!(denied.retry_after(), Some(MINUTE));
    assert_eq!(bench.ask(limit, 6).await.remaining(), 0);
}

/// Decided by the count from before the refill, the first request after a pause would be denied.
async fn judges_by_the_tokens_that_have_come_in_by_now(bench: &Bench) {
    let limit = Limit::token_bucket(5, per_second(5));
    bench.drain(limit, 1).await;
    bench.advance(SECOND);
    assert_eq!(bench.ask(limit, 5).await.remaining(), 0);
    bench.advance(3 * SECOND / 5);
    let denied = bench.ask(limit, 4).await;
    assert_eq!((denied.is_allowed(), denied.remaining()), (false, 3));
}

/// Applying `floor` on each call starves a caller that asks faster than tokens come in.
async fn a_fast_caller_is_refilled_all_the_same(bench: &Bench) {
    let had = had_by_a_fast_caller(bench, Limit::token_bucket(3, per_second(3))).await;
    assert_eq!(had, 9, "three a second for three seconds");
}

async fn no_fraction_of_a_token_is_lost_or_invented(bench: &Bench) {
    for (permits, period) in [(7, MINUTE), (3, SECOND), (11, Duration::from_micros(7_001))] {
        let limit = Limit::token_bucket(2, Rate::new(permits, period));
        let mut had = bench.drain(limit, 1).await;
        // Each look comes at another fraction of a token, and three periods pass in all.
        for _ in 0..300 {
            bench.advance(period / 100);
            had += bench.drain(limit, 1).await;
        }
        bench.advance(3 * (period - 100 * (period / 100)));
        had += bench.drain(limit, 1).await;
        assert_eq!(had, (2 + 3 * permits), "{limit:?}");
        bench.advance(period);
    }
}

/// A bucket that is forgotten after ten seconds would be full after ten seconds. `tests/redis/keys`
/// shows that Redis keeps it as long as it must.
async fn a_refill_of_days_is_not_cut_short(bench: &Bench) {
    let limit = Limit::token_bucket(10, Rate::new(1, DAY));
    bench.drain(limit, 1).await;
    for pause in [10 * SECOND, MINUTE, DAY - MINUTE - 11 * SECOND] {
        bench.advance(pause);
        assert_eq!(bench.ask(limit, 0).await.remaining(), 0);
    }
    bench.advance(SECOND);
    assert_eq!(bench.drain(limit, 1).await, 1);
    assert_eq!(bench.ask(limit, 0).await.reset_after(), 10 * DAY);
}

/// A crate that uses floating point admitted 1048 here.
async fn burst_of_1000_at_1_us_admits_1000_and_not_1048(bench: &Bench) {
    let limit = Limit::token_bucket(1_000, per_second(1_000_000));
    assert_eq!(bench.drain(limit, 1).await, 1_000);
    bench.advance_us(1);
    assert_eq!(bench.drain(limit, 1).await, 1);
}

/// Two other crates hold capacity + 1 after idling.
async fn idling_fills_it_to_the_brim_and_no_further(bench: &Bench) {
    for permits in [1, 3, 100] {
        let limit = Limit::token_bucket(permits, per_second(7));
        bench.advance(DAY);
        assert_eq!(bench.drain(limit, 1).await, permits);
        // A token less, and a microsecond more, than it takes to fill it.
        let full = bench.ask(limit, 0).await.reset_after();
        bench.advance(full + Duration::from_micros(1));
        assert_eq!(bench.drain(limit, 1).await, permits);
        bench.advance(DAY);
    }
}

/// A cluster would keep a second key, for the time of the last refill, elsewhere.
async fn a_bucket_is_one_key(bench: &Bench) {
    let limit = Limit::token_bucket(3, per_second(3));
    for _ in 0..5 {
        let _ = bench.ask(limit, 1).await;
        assert_eq!(bench.stored(), 1);
    }
}
