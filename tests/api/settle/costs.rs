//! What is counted in the end, and what is charged or given back for it.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tower_throttle::{
    HOUR, Limit, Limiter, MINUTE, MemoryStore, Penalty, Policy, RequestHead, SECOND, per_minute,
};

use super::{alice, is_unauthorized, rows, stated, status};
use support::bench::Bench;
use support::limits::in_time;
use support::on_every_store;
use support::web::{Service, eventually};

on_every_store! {
    failures_are_counted_and_successes_given_back
    no_more_failures_than_the_limit_reach_the_service_at_once
    what_an_estimate_was_too_high_by_is_given_back
    an_estimate_that_was_too_low_is_charged_and_delays_others
    an_estimate_that_was_right_is_settled_without_a_trip
    what_many_have_cost_at_the_same_time_adds_up
    each_policy_settles_its_own_cost
    what_a_penalty_answers_settles_no_policy_behind_it
}

async fn failures_are_counted_and_successes_given_back(bench: &Bench) {
    for (name, limit) in in_time(3, MINUTE) {
        let policy = Policy::new(name, limit).by(alice).count_if(is_unauthorized);
        let limiter = bench.limiter([policy]);
        let url = Service::open().behind(limiter.clone()).await;
        let remains = async |permits: u64| {
            eventually(&limiter, name, "alice", |looked| {
                looked.remaining() == permits
            })
            .await
        };
        for (answered, left) in [(200, 3), (401, 2), (404, 2), (401, 1), (200, 1), (401, 0)] {
            assert_eq!(
                status(format!("{url}/{answered}/0")).await,
                answered,
                "{name}"
            );
            let _ = remains(left).await;
        }
        for answered in [200, 401] {
            assert_eq!(status(format!("{url}/{answered}/0")).await, 429, "{name}");
        }
    }
}

async fn no_more_failures_than_the_limit_reach_the_service_at_once(bench: &Bench) {
    const LIMIT: usize = 4;
    const CLIENTS: usize = 20;
    for (name, limit) in in_time(LIMIT as u64, MINUTE) {
        let policy = Policy::new(name, limit).by(alice).count_if(is_unauthorized);
        let limiter = bench.limiter([policy]);
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        // First all of them succeed, and nothing was used after all.
        for answered in [200, 401] {
            let clients = (0..CLIENTS).map(|_| status(format!("{url}/{answered}/0")));
            let mut clients: FuturesUnordered<_> = clients.collect();
            for _ in LIMIT..CLIENTS {
                assert_eq!(clients.next().await, Some(429), "{name}");
            }
            service.let_out(LIMIT);
            for _ in 0..LIMIT {
                assert_eq!(clients.next().await, Some(answered), "{name}");
            }
            let left = if answered == 200 { LIMIT as u64 } else { 0 };
            let _ = eventually(&limiter, name, "alice", |looked| looked.remaining() == left).await;
        }
        assert_eq!(service.calls(), 2 * LIMIT);
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_eq!(looked.remaining(), 0, "{name}");
    }
}

async fn what_an_estimate_was_too_high_by_is_given_back(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        let limiter = bench.limiter([rows(limit)]);
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        let response = tokio::spawn(reqwest::get(format!("{url}/200/2")));
        service.inside(1).await;
        let reserved = limiter.peek("rows", "alice").await.unwrap();
        assert_eq!(
            reserved.remaining(),
            5,
            "{name}: the estimate is taken first"
        );
        service.let_out(1);
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        let told = response.headers()["ratelimit"].to_str().unwrap();
        assert!(
            told.contains(";r=5;"),
            "{name}: what was left before, {told}"
        );
        let _ = eventually(&limiter, "rows", "alice", |looked| looked.remaining() == 8).await;
        let _ = limiter.reset("rows", "alice").await.unwrap();
    }
}

async fn an_estimate_that_was_too_low_is_charged_and_delays_others(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        bench.align(MINUTE);
        let limiter = bench.limiter([rows(limit)]);
        let url = Service::open().behind(limiter.clone()).await;
        assert_eq!(status(format!("{url}/200/9")).await, 200);
        let _ = eventually(&limiter, "rows", "alice", |looked| looked.remaining() == 1).await;
        let _ = limiter.reset("rows", "alice").await.unwrap();

        // Over the limit, by more than a whole estimate.
        assert_eq!(status(format!("{url}/200/16")).await, 200);
        let _ = eventually(&limiter, "rows", "alice", |looked| looked.remaining() == 0).await;
        let denied = reqwest::get(format!("{url}/200/5")).await.unwrap();
        assert_eq!(denied.status(), 429, "{name}");
        let secs = denied.headers()["retry-after"].to_str().unwrap();
        let wait = Duration::from_secs(secs.parse().unwrap());
        bench.advance(wait - SECOND);
        assert_eq!(status(format!("{url}/200/5")).await, 429, "{name}");
        bench.advance(SECOND);
        assert_eq!(status(format!("{url}/200/5")).await, 200, "{name}");
        let _ = limiter.reset("rows", "alice").await.unwrap();
    }
}

async fn an_estimate_that_was_right_is_settled_without_a_trip(bench: &Bench) {
    // A connection tries scripts out before it is used.
    let trips = || bench.server_if_any().map(|server| server.calls("evalsha"));
    let connected = trips();
    let limiter = bench.limiter([rows(Limit::gcra(20, MINUTE))]);
    let url = Service::open().behind(limiter.clone()).await;
    for _ in 0..3 {
        assert_eq!(status(format!("{url}/200/5")).await, 200);
    }
    assert_eq!(limiter.peek("rows", "alice").await.unwrap().remaining(), 5);
    assert_eq!(trips(), connected.map(|before| before + 4));
}

async fn what_many_have_cost_at_the_same_time_adds_up(bench: &Bench) {
    const CLIENTS: u64 = 20;
    for (name, limit) in in_time(5 * CLIENTS, MINUTE) {
        let limiter = bench.limiter([rows(limit)]);
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        let costs = (0..CLIENTS).map(|client| client % 10);
        let requests = costs
            .clone()
            .map(|cost| status(format!("{url}/200/{cost}")));
        let responses = tokio::spawn(join_all(requests));
        service.inside(CLIENTS as usize).await;
        let reserved = limiter.peek("rows", "alice").await.unwrap();
        assert_eq!(reserved.remaining(), 0, "{name}");
        service.let_out(CLIENTS as usize);
        assert_eq!(responses.await.unwrap(), [200; CLIENTS as usize], "{name}");
        let left = 5 * CLIENTS - costs.sum::<u64>();
        let _ = eventually(&limiter, "rows", "alice", |looked| {
            looked.remaining() == left
        })
        .await;
        let _ = limiter.reset("rows", "alice").await.unwrap();
    }
}

async fn each_policy_settles_its_own_cost(bench: &Bench) {
    let limiter = bench.limiter([
        rows(Limit::gcra(10, MINUTE)),
        Policy::new("failures", Limit::sliding_log(10, MINUTE))
            .by(alice)
            .count_if(is_unauthorized),
        Policy::new("requests", Limit::fixed_window(10, MINUTE)).by(alice),
    ]);
    let url = Service::open().behind(limiter.clone()).await;
    assert_eq!(status(format!("{url}/200/7")).await, 200);
    for (policy, left) in [("rows", 3), ("failures", 10), ("requests", 9)] {
        let _ = eventually(&limiter, policy, "alice", |looked| {
            looked.remaining() == left
        })
        .await;
    }
}

async fn what_a_penalty_answers_settles_no_policy_behind_it(bench: &Bench) {
    for (name, limit) in in_time(3, HOUR) {
        let first = Policy::new("first", Limit::fixed_window(100, HOUR)).by(alice);
        let first = first.penalty(Penalty::after(50, MINUTE, HOUR));
        let login = Policy::new(name, limit).by(alice).count_if(is_unauthorized);
        let limiter = bench.limiter([first, login]);
        let url = Service::open().behind(limiter.clone()).await;
        for _ in 0..3 {
            assert_eq!(status(format!("{url}/200/0")).await, 200, "{name}");
            let _ = eventually(&limiter, name, "alice", |looked| looked.remaining() == 3).await;
        }
    }
}

#[tokio::test]
async fn a_cost_above_the_capacity_fits_no_waiter_and_no_settler() {
    let dear = |_: &RequestHead<'_>| 11;
    for policy in [
        rows(Limit::gcra(10, MINUTE)).cost_by(dear),
        rows(Limit::gcra(10, MINUTE)).cost_by(dear).max_wait(MINUTE),
        rows(Limit::leaky_bucket(10, per_minute(10))).cost_by(dear),
    ] {
        let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
        let service = Service::open();
        let url = service.behind(limiter.clone()).await;
        let denied = reqwest::get(format!("{url}/200/0")).await.unwrap();
        assert_eq!(denied.status(), 429);
        assert!(!denied.headers().contains_key("retry-after"));
        let text = denied.text().await.unwrap();
        assert!(
            text.contains("costs more than the quota can ever hold"),
            "{text}"
        );
        assert_eq!(service.calls(), 0);
        assert_eq!(limiter.peek("rows", "alice").await.unwrap().remaining(), 10);
    }
}

#[test]
fn a_concurrency_limit_cannot_settle() {
    let refusal = |policy: Policy| {
        let refused = Limiter::new(MemoryStore::new(), [policy]).unwrap_err();
        refused.to_string()
    };
    let exports = || Policy::new("exports", Limit::concurrency(2));
    let why = "got \"a limit of concurrency\": a concurrency limit gets its permits back when the \
               request ends, so there is nothing to settle";
    assert_eq!(
        refusal(exports().count_if(is_unauthorized)),
        format!("policy \"exports\": count_if: {why}")
    );
    assert_eq!(
        refusal(exports().settle(stated)),
        format!("policy \"exports\": settle: {why}")
    );
}
