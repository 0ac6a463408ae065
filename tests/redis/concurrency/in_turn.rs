//! One after the other: a place that is given back is free for the very next question.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Limit, Limiter, RateLimitLayer, RedisStore};

use super::places::{EVERYBODY, POLICY, patient, policy};
use support::bench::Bench;
use support::on_every_store;
use support::redis::Server;

on_every_store! {
    a_permit_that_is_dropped_makes_room_for_the_next_one
    a_body_that_has_ended_makes_room_for_the_next_request
}

/// Enough to rule out chance.
const TIMES: usize = 100;

async fn a_permit_that_is_dropped_makes_room_for_the_next_one(bench: &Bench) {
    admit_one_after_the_other(&bench.limiter([policy(Limit::concurrency(1))])).await;
}

async fn admit_one_after_the_other(limiter: &Limiter) {
    for time in 0..TIMES {
        let held = limiter.admit(POLICY, EVERYBODY).await;
        assert!(held.is_ok(), "{time}: {held:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returned_place_is_free_for_the_next_question_on_threads() {
    let server = Server::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let limiter = patient(store, [policy(Limit::concurrency(1))]);
    let by_a_task = limiter.clone();
    tokio::spawn(async move { admit_one_after_the_other(&by_a_task).await })
        .await
        .unwrap();
    // The future that is blocked on runs on no worker.
    limiter.flush().await;
    admit_one_after_the_other(&limiter).await;
}

async fn a_body_that_has_ended_makes_room_for_the_next_request(bench: &Bench) {
    let limiter = bench.limiter([policy(Limit::concurrency(1))]);
    let hello = async |_| Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")));
    let service = RateLimitLayer::new(limiter)
        .wrap_body()
        .layer(service_fn(hello));
    for time in 0..TIMES {
        let request = Request::new(Full::<Bytes>::default());
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "{time}");
        response.into_body().collect().await.unwrap();
    }
}
