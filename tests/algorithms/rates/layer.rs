//! Through the layer, over real sockets, on every store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::HeaderMap;
use tower_throttle::{
    HOUR, Key, Limit, MINUTE, Policy, QuotaHeaders, RateLimitLayer, RequestHead, ResponseHead,
    SECOND,
};

use super::with_rates;
use support::bench::Bench;
use support::on_every_store;
use support::web::{Service, eventually, serve};

on_every_store! {
    headers_tell_of_the_rate_that_leaves_the_fewest
    what_is_settled_is_given_back_under_every_rate
    a_request_can_have_a_limit_of_as_many_rates
    a_neighbours_denial_charges_no_rate
}

fn alice(_: &RequestHead<'_>) -> Option<Key> {
    Some(Key::from("alice"))
}

fn values_of(headers: &HeaderMap, names: &[&str]) -> Vec<String> {
    let value = |name: &&str| headers[*name].to_str().unwrap().to_owned();
    names.iter().map(value).collect()
}

async fn headers_tell_of_the_rate_that_leaves_the_fewest(bench: &Bench) {
    bench.align(HOUR);
    let limit = Limit::fixed_window(3, 10 * SECOND).and(5, HOUR);
    let limiter = bench.limiter([Policy::new("api", limit).by(alice)]);
    let headers = QuotaHeaders::DRAFT_11
        .and(QuotaHeaders::DRAFT_6)
        .and(QuotaHeaders::X_RATELIMIT_DELTA);
    let app = Router::new().route("/", get(async || "hello"));
    let layer = RateLimitLayer::new(limiter).headers(headers);
    let url = serve(app.layer(layer)).await;
    let draft_11 = ["ratelimit-policy", "ratelimit"];
    let ask = async || {
        let response = reqwest::get(&url).await.unwrap();
        (response.status().as_u16(), response.headers().clone())
    };
    let second = |left: u64| {
        [
            r#""api";q=3;w=10"#.to_owned(),
            format!(r#""api";r={left};t=10"#),
        ]
    };
    for left in [2, 1, 0] {
        let (status, headers) = ask().await;
        assert_eq!(status, 200);
        assert_eq!(values_of(&headers, &draft_11), second(left));
        for family in ["ratelimit", "x-ratelimit"] {
            let names = ["limit", "remaining", "reset"].map(|name| format!("{family}-{name}"));
            let names = names.each_ref().map(String::as_str);
            // Everything is back when all of the hour is.
            assert_eq!(
                values_of(&headers, &names),
                ["3", &left.to_string(), "3600"]
            );
        }
    }
    let (status, headers) = ask().await;
    assert_eq!(status, 429);
    assert_eq!(values_of(&headers, &draft_11), second(0));
    assert_eq!(headers["retry-after"], "10");
    bench.advance(10 * SECOND);
    for (status, left) in [(200, 1), (200, 0), (429, 0)] {
        let (found, headers) = ask().await;
        assert_eq!(found, status);
        let hour = [
            r#""api";q=5;w=3600"#.to_owned(),
            format!(r#""api";r={left};t=3590"#),
        ];
        assert_eq!(values_of(&headers, &draft_11), hour);
        assert_eq!(headers["ratelimit-remaining"], left.to_string());
        if status == 429 {
            assert_eq!(headers["retry-after"], "3590");
        }
    }
}

async fn what_is_settled_is_given_back_under_every_rate(bench: &Bench) {
    for (name, limit) in with_rates((5, SECOND), &[(20, HOUR)]) {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let counts = move |response: &ResponseHead<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            response.status == 401
        };
        let policy = Policy::new(name, limit).by(alice).cost(3).count_if(counts);
        let limiter = bench.limiter([policy]);
        let url = Service::open().behind(limiter.clone()).await;
        let status = async |status: u16| {
            let response = reqwest::get(format!("{url}/{status}/0")).await.unwrap();
            response.status().as_u16()
        };
        assert_eq!(status(200).await, 200, "{name}");
        let is_whole = |looked: &tower_throttle::Decision| looked.reset_after() == Duration::ZERO;
        let _ = eventually(&limiter, name, "alice", is_whole).await;
        assert_eq!(status(401).await, 401, "{name}");
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_eq!(looked.remaining(), 2, "{name}");
        assert_eq!(
            asked.load(Ordering::SeqCst),
            2,
            "{name}: once for each response"
        );
        let _ = limiter.reset(name, "alice").await.unwrap();
    }
}

async fn a_request_can_have_a_limit_of_as_many_rates(bench: &Bench) {
    bench.align(HOUR);
    let basic = Limit::sliding_log(2, MINUTE).and(3, HOUR);
    let premium = |request: &RequestHead<'_>, _: &Key| {
        let tier = request.headers.get("x-tier")?.to_str().ok()?;
        Some(match tier {
            "premium" => Limit::sliding_log(4, MINUTE).and(9, HOUR),
            _ => Limit::sliding_log(4, MINUTE),
        })
    };
    let limiter = bench.limiter([Policy::new("user", basic).by(alice).limit_by(premium)]);
    let url = Service::open().behind(limiter.clone()).await;
    let ask = async |tier: Option<&str>| {
        let mut request = reqwest::Client::new().get(format!("{url}/200/0"));
        if let Some(tier) = tier {
            request = request.header("x-tier", tier);
        }
        let response = request.send().await.unwrap();
        response.status().as_u16()
    };
    let mut statuses = Vec::new();
    for tier in [
        None,
        None,
        None,
        Some("premium"),
        Some("premium"),
        Some("premium"),
    ] {
        statuses.push(ask(tier).await);
    }
    assert_eq!(
        statuses,
        [200, 200, 429, 200, 200, 429],
        "what was used stays used"
    );
    bench.advance(2 * MINUTE);
    assert_eq!(ask(None).await, 429, "4 of 3 an hour");
    assert_eq!(ask(Some("premium")).await, 200, "4 of 9 an hour");
    assert_eq!(ask(Some("other")).await, 500, "one rate is not two");
}

async fn a_neighbours_denial_charges_no_rate(bench: &Bench) {
    let limit = Limit::gcra(10, SECOND).and(20, HOUR);
    let api = Policy::new("api", limit).by(alice);
    let narrow = Policy::new("narrow", Limit::gcra(1, HOUR).and(5, 24 * HOUR)).by(alice);
    let limiter = bench.limiter([api, narrow]);
    let url = format!("{}/200/0", Service::open().behind(limiter.clone()).await);
    for status in [200, 429, 429] {
        assert_eq!(reqwest::get(&url).await.unwrap().status(), status);
    }
    assert_eq!(limiter.peek("api", "alice").await.unwrap().remaining(), 9);
    let charged = limiter.charge("api", "alice", 19).await.unwrap();
    assert_eq!(charged.remaining(), 0);
    bench.advance(10 * SECOND);
    // If a denial had taken any, this would be exceeded: 20 are taken of 20.
    let looked = limiter.peek("api", "alice").await.unwrap();
    assert_eq!(looked.reset_after(), HOUR - 10 * SECOND);
}
