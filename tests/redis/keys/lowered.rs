//! A limit that is lowered while many more leases live: denials until they are released are as
//! cheap as others.

use tower_throttle::store::Wait;
use tower_throttle::{Limit, MINUTE, SECOND};

use crate::keys::expiry;
use support::bench::Bench;

const LEASES: u64 = 1_000;

#[tokio::test]
async fn a_denial_far_above_the_limit_takes_few_commands() {
    let bench = Bench::redis().await;
    let of = |permits| Limit::concurrency(permits).lease(MINUTE);
    let take = |cost, number| expiry::take(cost, Wait::None, number);
    for number in 1..=LEASES {
        let _ = bench.act(of(2_000), take(1, number)).await;
        bench.advance(SECOND / 1_000);
    }
    let commands = ["zscore", "zcount", "zrangebyscore", "zrevrange"];
    let calls = || -> u64 { commands.map(|name| bench.server().calls(name)).iter().sum() };
    let before = calls();
    let denied = bench.act(of(10), take(3, LEASES + 1)).await;
    let taken = calls() - before;
    assert!(taken < 10, "{taken} commands");
    // Seven may stay: the one before the last seven was taken 8 ms ago.
    let wait = MINUTE - SECOND / 1_000 * 8;
    assert_eq!(denied.retry_after(), Some(wait));
}
