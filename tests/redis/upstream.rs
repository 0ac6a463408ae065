//! Clients of four processes over one Redis, and an upstream that refuses one request.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use futures_util::future::join_all;
use reqwest::{Client, Method, Request, Response};
use support::redis::Server;
use tower::{Layer, Service, ServiceExt};
use tower_throttle::{
    FailureMode, Feedback, Key, Limit, Limiter, Policy, ResponseHead, SECOND, ThrottleLayer,
    per_second,
};

const RATE: u64 = 20;
const HOLD: Duration = Duration::from_secs(2);
/// Which request is refused.
const REFUSED: usize = 6;
const CALLERS: usize = 60;

/// Serves the upstream. Returns its address, and where it notes when requests arrive.
async fn upstream() -> (String, Arc<Mutex<Vec<Instant>>>) {
    let arrived: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&arrived);
    let answer = async move || {
        let mut noted = noted.lock().unwrap();
        noted.push(Instant::now());
        match noted.len() == REFUSED {
            true => {
                let retry_after = [("retry-after", HOLD.as_secs().to_string())];
                (StatusCode::TOO_MANY_REQUESTS, retry_after).into_response()
            }
            false => "hello".into_response(),
        }
    };
    let url = support::web::serve(Router::new().route("/", get(answer))).await;
    (url, arrived)
}

/// One process of the fleet has a store, a limiter and a client of its own.
async fn process(redis: &Server, limit: Limit) -> Limiter {
    let policy = Policy::new("partner", limit).on_store_failure(FailureMode::Deny);
    let limiter = Limiter::builder(redis.store().await, [policy]);
    limiter.timeout(60 * SECOND).build().unwrap()
}

/// All of them have a place before the refusal, most of them for a time within the hold or behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refusal_holds_four_processes_and_nothing_arrives_early() {
    let redis = Server::start();
    for limit in [
        Limit::token_bucket(2, per_second(RATE)),
        Limit::leaky_bucket(2, per_second(RATE)),
        Limit::gcra(RATE, SECOND).burst(2).and(10_000, 60 * SECOND),
    ] {
        let (url, arrived) = upstream().await;
        let mut fleet = Vec::new();
        for _ in 0..4 {
            fleet.push(process(&redis, limit).await);
        }
        let callers = (0..CALLERS).map(|nth| {
            let feedback = Feedback::http().head(|response: &Response| {
                let (status, headers) = (response.status(), response.headers());
                ResponseHead::from_parts(status, headers, response.extensions())
            });
            let layer = ThrottleLayer::new(fleet[nth % 4].clone(), "partner").unwrap();
            let mut client = layer.feedback(feedback).layer(Client::new());
            let request = Request::new(Method::GET, url.parse().unwrap());
            async move { client.ready().await.unwrap().call(request).await.unwrap() }
        });
        let answers = join_all(callers.map(tokio::spawn)).await;
        assert!(answers.into_iter().all(|answer| answer.is_ok()));

        let arrived = arrived.lock().unwrap().clone();
        let refused = arrived[REFUSED - 1];
        let later = arrived[REFUSED..].iter().map(|at| *at - refused);
        let (early, late): (Vec<_>, Vec<_>) = later.partition(|after| *after < HOLD);
        assert_eq!(early.len() + late.len(), CALLERS - REFUSED);
        // Sent already, or within a round trip of the answer. Without a hold there would be forty.
        assert!(early.len() <= 5, "{limit:?} {early:?}");
        // Never more than the rate gives since the hold, whatever was left before.
        for (count, after) in (1..).zip(&late) {
            let most = 1 + (after.as_micros() - HOLD.as_micros()) * u128::from(RATE) / 1_000_000;
            // One more, as the clocks of Redis and of this process tick apart.
            assert!(
                count <= most + 1,
                "{limit:?} request {count} after {after:?}"
            );
        }
        let _: () = redis.query("flushall");
    }
}

#[tokio::test]
async fn a_hold_lapses_with_its_key_and_a_reset_forgets_it() {
    let redis = Server::start();
    let limiter = process(&redis, Limit::gcra(RATE, SECOND)).await;
    let layer = ThrottleLayer::new(limiter.clone(), "partner").unwrap();
    let refuse = tower::service_fn(async |_: ()| {
        let response = http::Response::builder().status(503);
        response.header("retry-after", "30").body(())
    });
    let mut client = layer.feedback(Feedback::http()).layer(refuse);
    client.ready().await.unwrap().call(()).await.unwrap();
    assert!(limiter.flush().await);
    let keys = redis.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in &keys {
        let left: u64 = redis.query(&["ttl", key]);
        assert!((25..=33).contains(&left), "{key} {left}");
    }
    assert!(
        keys.iter().any(|key| key.contains("gcra2+hold:")),
        "{keys:?}"
    );
    let reset = limiter.reset("partner", Key::everybody()).await.unwrap();
    assert!(reset.is_allowed());
    assert!(redis.keys().is_empty());
    client.ready().await.unwrap();
}
