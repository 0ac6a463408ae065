//! GCRA: a steady rate with a burst.

use std::time::Duration;

use tower_throttle::{Limit, SECOND};

use crate::support::bench::Bench;
use crate::support::on_every_store;

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

/// `floor` on each call starves a caller that asks faster than one permit comes back.
async fn a_fast_caller_is_refilled_all_the_same(bench: &Bench) {
    let limit = Limit::gcra(3, SECOND);
    bench.drain(limit, 1).await;
    let mut had = 0;
    for _ in 0..1_000 {
        bench.advance(Duration::from_millis(3));
        had += u32::from(bench.ask(limit, 1).await.is_allowed());
    }
    assert_eq!(had, 9, "three a second for three seconds");
}
