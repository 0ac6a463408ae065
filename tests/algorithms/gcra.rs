//! GCRA: a steady rate with a burst.

use tower_throttle::{Limit, SECOND};

use crate::had_by_a_fast_caller;
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    burst_of_1000_at_1_us_admits_1000_and_not_1048
    a_fast_caller_is_refilled_all_the_same
}

async fn burst_of_1000_at_1_us_admits_1000_and_not_1048(bench: &Bench) {
    let limit = Limit::gcra(1_000_000, SECOND).burst(1_000);
    assert_eq!(bench.drain(limit, 1).await, 1_000);
    bench.advance_us(1);
    assert_eq!(bench.drain(limit, 1).await, 1);
}

/// Applying `floor` on each call starves a caller that asks faster than permits come back.
async fn a_fast_caller_is_refilled_all_the_same(bench: &Bench) {
    let had = had_by_a_fast_caller(bench, Limit::gcra(3, SECOND)).await;
    assert_eq!(had, 9, "three a second for three seconds");
}
