//! Rules that are replaced while a request is in flight: it gives back under those it was decided
//! by, is charged under those in force, and what others have used under the new ones stays used.

use std::time::Duration;

use axum::http::StatusCode;
use tower_throttle::{HOUR, Limit, Limiter, MINUTE, Policy};

use super::{alice, is_unauthorized, rows, status};
use support::bench::Bench;
use support::on_every_store;
use support::web::{Service, eventually};

on_every_store! {
    a_longer_windows_use_outlasts_a_refund_by_a_shorter_one
    a_longer_windows_use_outlasts_an_earlier_requests_charge
}

type OfWindow = fn(u64, Duration) -> Limit;

async fn a_longer_windows_use_outlasts_a_refund_by_a_shorter_one(bench: &Bench) {
    let each: [OfWindow; 3] = [
        Limit::sliding_log,
        Limit::sliding_window,
        Limit::sliding_counter,
    ];
    for limit in each {
        let name = format!("{:?}", limit(5, HOUR));
        assert_eq!(failures_let_through(bench, limit, false).await, 4, "{name}");
        assert_eq!(failures_let_through(bench, limit, true).await, 5, "{name}");
    }
}

async fn a_longer_windows_use_outlasts_an_earlier_requests_charge(bench: &Bench) {
    let each: [OfWindow; 5] = [
        Limit::fixed_window,
        |limit, window| Limit::fixed_window(limit, window).aligned(),
        Limit::sliding_log,
        Limit::sliding_window,
        Limit::sliding_counter,
    ];
    for limit in each {
        bench.align(HOUR);
        let [short, long] = [MINUTE, HOUR].map(|window| rows(limit(20, window)));
        let limiter = bench.limiter([short]);
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        let dear = tokio::spawn(status(format!("{url}/200/6")));
        service.inside(1).await;
        limiter.replace([long]).unwrap();
        // What it has taken comes back, and others come.
        bench.advance(2 * MINUTE);
        let others = limiter.check_cost("rows", "alice", 10).await.unwrap();
        assert!(others.is_allowed());

        bench.advance(2 * MINUTE);
        service.let_out(1);
        assert_eq!(dear.await.unwrap(), StatusCode::OK);
        let _ = eventually(&limiter, "rows", "alice", |looked| looked.remaining() != 10).await;
        let left = limiter.peek("rows", "alice").await.unwrap().remaining();
        assert_eq!(left, 9, "{:?}", limit(20, HOUR));
        let _ = limiter.reset("rows", "alice").await.unwrap();
    }
}

/// With a limit of five: how many failures an hour lets through, if the window is changed from a
/// minute to an hour while a success is in flight, which ends or is abandoned.
async fn failures_let_through(bench: &Bench, limit: OfWindow, ends: bool) -> u64 {
    bench.align(HOUR);
    let login = |window| {
        let login = Policy::new("login", limit(5, window)).by(alice);
        login.count_if(is_unauthorized)
    };
    let limiter = bench.limiter([login(MINUTE)]);
    let service = Service::closed();
    let url = service.behind(limiter.clone()).await;
    let success = tokio::spawn(status(format!("{url}/200/0")));
    service.inside(1).await;
    limiter.replace([login(HOUR)]).unwrap();

    let mut failures = fail(&limiter, 9).await;
    assert_eq!(failures, 4);
    if ends {
        service.let_out(1);
        assert_eq!(success.await.unwrap(), StatusCode::OK);
        let _ = eventually(&limiter, "login", "alice", |looked| looked.remaining() == 1).await;
    } else {
        success.abort();
    }
    for _ in 0..4 {
        bench.advance(14 * MINUTE);
        failures += fail(&limiter, 9).await;
    }
    let _ = limiter.reset("login", "alice").await.unwrap();
    failures
}

/// How many of this many attempts are let through, each of which fails.
async fn fail(limiter: &Limiter, attempts: u64) -> u64 {
    let mut failures = 0;
    for _ in 0..attempts {
        let decision = limiter.check("login", "alice").await.unwrap();
        failures += u64::from(decision.is_allowed());
    }
    failures
}
