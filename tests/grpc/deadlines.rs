//! Calls with a deadline, under a policy that holds calls up.

use std::time::Duration;

use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_types::StatusExt;
use tower_throttle::store::Store;
use tower_throttle::{HOUR, Limit, Limiter, MemoryStore, Policy, RateLimitLayer, RedisStore};

use crate::stage::{Counted, check, client, serve};
use support::redis::Server;

async fn a_call_that_cannot_be_answered_in_time_is_denied_at_once(store: impl Store) {
    let one_an_hour = Policy::new("api", Limit::gcra(1, HOUR)).max_wait(HOUR);
    let limiter = Limiter::new(store, [one_an_hour]).expect("a valid policy");
    let service = Counted::default();
    let layer = RateLimitLayer::new(limiter);
    let mut client = client(serve(layer, service.clone()).await).await;
    check(&mut client).await.expect("the first of the hour");

    let mut call = Request::new(HealthCheckRequest::default());
    call.set_timeout(Duration::from_secs(60));
    let denied = client.check(call).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted, "{denied}");
    let info = denied.get_details_retry_info().expect("a wait");
    let wait = info.retry_delay.expect("a wait");
    // Within its deadline it fits when all but a minute of the hour is over.
    let expected = Duration::from_secs(58 * 60)..=Duration::from_secs(59 * 60 + 1);
    assert!(expected.contains(&wait), "{wait:?}");
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn over_memory() {
    a_call_that_cannot_be_answered_in_time_is_denied_at_once(MemoryStore::new()).await;
}

#[tokio::test]
async fn over_redis() {
    let server = Server::start();
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    a_call_that_cannot_be_answered_in_time_is_denied_at_once(store).await;
}
