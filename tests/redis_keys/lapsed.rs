//! Leases that lapsed, as all of a process that died: they are counted, and cleared, at once.

use std::num::NonZeroU64;

use tower_throttle::algorithm::{Action, LeaseId, Patience, Take};
use tower_throttle::{Limit, MINUTE, SECOND};

use crate::support::bench::Bench;

const LEASES: u64 = 2_500;

/// A call for each would hold up everybody else on the server.
#[tokio::test]
async fn many_leases_that_lapsed_take_few_commands() {
    let bench = Bench::redis().await;
    let limit = Limit::concurrency(10_000).lease(MINUTE);
    let take = |number: u64| {
        Action::Take(Take {
            cost: 1,
            patience: Patience::None,
            lease: NonZeroU64::new(number).map(LeaseId::from),
            is_final: false,
        })
    };
    for number in 1..=LEASES {
        let _ = bench.act(limit, take(number)).await;
    }
    bench.advance(30 * SECOND);
    assert!(bench.act(limit, take(LEASES + 1)).await.is_allowed());
    assert_eq!(bench.ask(limit, 0).await.remaining(), 10_000 - 2_501);

    bench.advance(30 * SECOND);
    let commands = ["zscore", "zcount", "zrem", "zremrangebyscore"];
    let calls = || -> u64 { commands.map(|name| bench.server().calls(name)).iter().sum() };
    let before = calls();
    assert_eq!(bench.ask(limit, 0).await.remaining(), 9_999);
    assert_eq!(bench.act(limit, take(LEASES + 2)).await.remaining(), 9_998);
    let taken = calls() - before;
    assert!(taken < 50, "{taken} commands");

    let mut members = redis::cmd("ZCARD");
    members.arg(&bench.server().keys()[0]);
    // Two leases, and what both hold.
    assert_eq!(bench.server().query::<u64>(members), 3);
}
