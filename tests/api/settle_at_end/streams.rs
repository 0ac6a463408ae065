//! Streams at the same time never exceed a limit together that their estimates cover.

use std::convert::Infallible;

use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use support::bench::Bench;
use support::on_every_store;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Limiter, RateLimitLayer};

use super::*;

on_every_store! {
    five_streams_at_once_never_use_more_than_the_limit
    two_policies_settle_by_meters_of_their_own
}

const LIMIT: u64 = 100;

const ESTIMATE: u64 = 30;

/// Sends a request whose answer uses this much, and drops the answer after a chunk if told to. Returns
/// what it costs.
async fn stream(limiter: Limiter, chunks: Vec<u64>, is_dropped: bool) -> u64 {
    let used: u64 = match is_dropped {
        true => ESTIMATE,
        false => chunks.iter().sum(),
    };
    let service = service_fn(move |request: Request<()>| {
        let meter: &Meter = request.extensions().get().expect("a meter");
        let body = Metered {
            meter: meter.clone(),
            chunks: chunks.clone().into(),
            ending: None,
            is_exact: false,
        };
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let service = RateLimitLayer::new(limiter).wrap_body().layer(service);
    let request = Request::builder().header(KEY, "alice");
    let request = request.body(()).expect("a request");
    let response = service.oneshot(request).await.expect("an answer");
    if response.status() == 429 {
        return 0;
    }
    let mut body = response.into_body();
    match is_dropped {
        true => drop(body.frame().await),
        false => drop(body.collect().await),
    }
    used
}

async fn five_streams_at_once_never_use_more_than_the_limit(bench: &Bench) {
    let policy = Policy::new("tokens", Limit::sliding_log(LIMIT, MINUTE))
        .by(Header::new(KEY))
        .cost(ESTIMATE)
        .settle_at_end(|end| end.used());
    let limiter = bench.limiter([policy]);
    let mut used = 0;
    for round in 0..12 {
        let streams = (0..5).map(|number| {
            let chunks = vec![round % 11, number * 3, 7];
            stream(limiter.clone(), chunks, number == 4)
        });
        used += join_all(streams).await.iter().sum::<u64>();
        assert!(limiter.flush().await);
        assert!(used <= LIMIT, "{used}");
    }
    // The limit was used, as far as estimates let anybody in.
    assert!(used > LIMIT - ESTIMATE, "{used}");
}

async fn two_policies_settle_by_meters_of_their_own(bench: &Bench) {
    let cents = Policy::new("cents", Limit::fixed_window(1_000, MINUTE))
        .by(Header::new(KEY))
        .settle_at_end(|end| end.used_of("cents"));
    let limiter = bench.limiter([tokens(10), cents]);
    let service = service_fn(|request: Request<()>| async move {
        let meter: &Meter = request.extensions().get().expect("a meter");
        meter.add(250);
        meter.named("cents").add(3);
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(service);
    let request = Request::builder().header(KEY, "alice");
    let request = request.body(()).expect("a request");
    let response = service.oneshot(request).await.expect("an answer");
    drop(response.into_body().collect().await);
    assert!(limiter.flush().await);
    for (policy, left) in [("tokens", 750), ("cents", 997)] {
        let looked = limiter.peek(policy, key("alice")).await.expect("a policy");
        assert_eq!(looked.remaining(), left, "{policy}");
    }
}
