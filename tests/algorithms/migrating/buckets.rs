//! Limits that give permits back one by one.

use axum::Router;
use axum::routing::get;
use tower_throttle::{
    Key, Limit, MINUTE, Policy, QuotaHeaders, RateLimitLayer, RequestHead, SECOND, per_second,
};

use super::{TENTH, admit_the_same, theirs, waiting};
use support::bench::Bench;
use support::web::serve;

#[tokio::test]
async fn governor_and_redis_cell() {
    for (limit, interval_ms, burst) in [
        // tower_governor: per_second(2), burst_size(5)
        (Limit::gcra(5, 10 * SECOND), 2_000, 5),
        // its default
        (Limit::gcra(8, 4 * SECOND), 500, 8),
        // governor: Quota::per_second(10)
        (Limit::gcra(10, SECOND), 100, 10),
        // CL.THROTTLE key 15 30 60
        (Limit::gcra(30, MINUTE).burst(16), 2_000, 16),
    ] {
        admit_the_same(limit, 1, || theirs::gcra(interval_ms, burst)).await;
    }
}

/// Serves what one policy allows. Returns the URL.
async fn served(limit: Limit) -> String {
    let alice = |_: &RequestHead<'_>| Some(Key::from("alice"));
    let limiter = Bench::memory().limiter([Policy::new("api", limit).by(alice)]);
    let layer = RateLimitLayer::new(limiter).headers(QuotaHeaders::X_RATELIMIT_DELTA);
    serve(Router::new().route("/", get(async || "hello")).layer(layer)).await
}

/// What is left of the burst, as `use_headers()` shows it.
#[tokio::test]
async fn governors_headers_show_the_burst() {
    let url = served(Limit::gcra(5, 10 * SECOND)).await;
    for left in ["4", "3", "2", "1", "0"] {
        let response = reqwest::get(&url).await.unwrap();
        assert_eq!(response.headers()["x-ratelimit-limit"], "5");
        assert_eq!(response.headers()["x-ratelimit-remaining"], left);
    }
    let denied = reqwest::get(&url).await.unwrap();
    assert_eq!(denied.status().as_u16(), 429);
    assert_eq!(denied.headers()["retry-after"], "2");
}

/// Not the 20 of the bucket, which Spring Cloud Gateway shows.
#[tokio::test]
async fn headers_of_a_bucket_show_at_most_its_rate() {
    let url = served(Limit::token_bucket(20, per_second(10))).await;
    let response = reqwest::get(&url).await.unwrap();
    assert_eq!(response.headers()["x-ratelimit-limit"], "10");
    assert_eq!(response.headers()["x-ratelimit-remaining"], "10");
}

#[tokio::test]
async fn spring_cloud_gateway_and_envoys_local_filter() {
    // replenishRate 10, burstCapacity 20
    let limit = Limit::token_bucket(20, per_second(10));
    admit_the_same(limit, 1, || theirs::token_bucket(20, 10, 1)).await;
    admit_the_same(limit, 4, || theirs::token_bucket(20, 10, 4)).await;
    // replenishRate 1, burstCapacity 60, requestedTokens 60
    let limit = Limit::gcra(1, MINUTE);
    admit_the_same(limit, 1, || theirs::token_bucket(60, 1, 60)).await;
    // max_tokens 100, tokens_per_fill 50, fill_interval 1 s
    let limit = Limit::token_bucket(100, per_second(50));
    admit_the_same(limit, 10, || theirs::token_bucket(100, 50, 10)).await;
}

/// `QueueLimit = 10` of .NET's token bucket with 50 tokens a second.
#[tokio::test]
async fn a_longest_wait_of_200_ms_queues_ten_at_50_a_second() {
    let (bench, limit) = (Bench::memory(), Limit::token_bucket(100, per_second(50)));
    assert_eq!(bench.drain(limit, 1).await, 100);
    for position in 1..=10 {
        let queued = waiting(&bench, limit, 2 * TENTH).await;
        assert_eq!(
            (queued.is_allowed(), queued.delay()),
            (true, position * TENTH / 5)
        );
    }
    assert!(!waiting(&bench, limit, 2 * TENTH).await.is_allowed());
}
