//! Lapsed leases, such as all of a dead process, are counted and cleared at once; and so is what a log has
//! of lapsed permits.

use tower_throttle::store::{Action, Wait};
use tower_throttle::{Limit, MINUTE, SECOND};

use crate::keys::expiry;
use support::bench::Bench;

const LEASES: u64 = 2_500;

/// A call for each would block everybody else on the server.
#[tokio::test]
async fn many_leases_that_lapsed_take_few_commands() {
    let bench = Bench::redis().await;
    let limit = Limit::concurrency(10_000).lease(MINUTE);
    let take = |number| expiry::take(1, Wait::None, number);
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
    // Two leases, and the total.
    assert_eq!(members(&bench), 3);
}

/// Otherwise they would outlive it for as long as there are others.
#[tokio::test]
async fn the_permits_of_a_lease_that_lapsed_or_is_released_go_with_it() {
    let bench = Bench::redis().await;
    let limit = Limit::concurrency(9).lease(MINUTE);
    let _ = bench.act(limit, expiry::take(2, Wait::None, 1)).await;
    bench.advance(50 * SECOND);
    let _ = bench.act(limit, expiry::take(1, Wait::None, 2)).await;
    // The first lease, its permits, the second one, and the total.
    assert_eq!(members(&bench), 4);
    bench.advance(20 * SECOND);
    let _ = bench.act(limit, expiry::take(1, Wait::None, 3)).await;
    assert_eq!(members(&bench), 3);
    let _ = bench.act(limit, expiry::take(2, Wait::None, 4)).await;
    assert_eq!(members(&bench), 5);
    let _ = bench.act(limit, Action::Release(expiry::lease(4))).await;
    assert_eq!(members(&bench), 3);
}

fn members(bench: &Bench) -> u64 {
    bench.server().query(("ZCARD", &bench.server().keys()[0]))
}

#[tokio::test]
async fn a_log_drops_the_entries_that_have_lapsed_with_each_take() {
    let bench = Bench::redis().await;
    let limit = Limit::sliding_log(3, MINUTE);
    for _ in 0..10 {
        bench.advance(MINUTE / 2);
        assert!(bench.ask(limit, 1).await.is_allowed());
    }
    let key = bench.server().keys().remove(0);
    let items: usize = bench.server().query(("LLEN", key));
    assert_eq!(items, 2 + 2 * 2, "two entries");
}
