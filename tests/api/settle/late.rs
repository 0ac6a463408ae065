//! Late responses: what time has given back meanwhile is not given back again.

use tower_throttle::{Limit, MINUTE, Policy, SECOND, per_minute};

use super::{alice, is_unauthorized, rows, status};
use support::bench::Bench;
use support::limits::in_time;
use support::on_every_store;
use support::web::{Service, eventually};

on_every_store! {
    a_window_that_has_ended_in_between_is_not_touched
    what_came_back_by_itself_is_not_given_back_once_more
    later_permits_of_others_are_not_given_back
}

async fn a_window_that_has_ended_in_between_is_not_touched(bench: &Bench) {
    bench.align(MINUTE);
    for limit in [
        Limit::fixed_window(10, MINUTE),
        Limit::fixed_window(10, MINUTE).aligned(),
    ] {
        let after_end = |bench: &Bench| bench.advance(MINUTE);
        slow_then_another(bench, limit, after_end, 8).await;
    }
}

async fn what_came_back_by_itself_is_not_given_back_once_more(bench: &Bench) {
    for (_, limit) in in_time(10, MINUTE) {
        let long_after = |bench: &Bench| bench.advance(3 * MINUTE);
        slow_then_another(bench, limit, long_after, 8).await;
    }
    // Half of what it has taken has come back after half of the time.
    for limit in [
        Limit::gcra(10, MINUTE),
        Limit::token_bucket(10, per_minute(10)),
        Limit::leaky_bucket(10, per_minute(10)).without_delay(),
    ] {
        let meanwhile = |bench: &Bench| bench.advance(15 * SECOND);
        slow_then_another(bench, limit, meanwhile, 8).await;
    }
}

/// A request that will cost nothing is inside while time passes; then another one comes that will
/// cost two. `left` remains in the end.
async fn slow_then_another(bench: &Bench, limit: Limit, meanwhile: impl Fn(&Bench), left: u64) {
    let limiter = bench.limiter([rows(limit)]);
    let service = Service::closed();
    let url = service.behind(limiter.clone()).await;
    let slow = tokio::spawn(status(format!("{url}/200/0")));
    service.inside(1).await;
    meanwhile(bench);
    let another = tokio::spawn(status(format!("{url}/200/2")));
    service.inside(2).await;
    service.let_out(1);
    assert_eq!(slow.await.unwrap(), 200);
    service.let_out(1);
    assert_eq!(another.await.unwrap(), 200);
    // In the other order it would be ten: the refunds are sent in this order.
    let _ = eventually(&limiter, "rows", "alice", |looked| {
        looked.remaining() == left
    })
    .await;
    let _ = limiter.reset("rows", "alice").await.unwrap();
}

/// Otherwise a client with slow successes in flight would have as many failures more.
async fn later_permits_of_others_are_not_given_back(bench: &Bench) {
    let limit = Limit::gcra(3, MINUTE);
    let policy = Policy::new("login", limit)
        .by(alice)
        .count_if(is_unauthorized);
    let limiter = bench.limiter([policy]);
    let service = Service::closed();
    let url = service.behind(limiter.clone()).await;
    let mut slow = Vec::new();
    for inside in 1..=6 {
        slow.push(tokio::spawn(status(format!("{url}/200/0"))));
        service.inside(inside).await;
        bench.advance(20 * SECOND);
    }
    for _ in 0..3 {
        assert!(limiter.check("login", "alice").await.unwrap().is_allowed());
    }
    // One more than there are, so that it would be answered if it were let in.
    service.let_out(7);
    for slow in slow {
        assert_eq!(slow.await.unwrap(), 200);
    }
    assert_eq!(status(format!("{url}/401/0")).await, 429);
}
