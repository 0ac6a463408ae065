//! One after the other: what a response has settled is so for the very next request.

use std::convert::Infallible;

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{HOUR, Limit, Policy, RateLimitLayer, ResponseHead};

use super::{alice, is_unauthorized};
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    what_does_not_count_is_there_for_the_next_request
    what_was_too_little_is_charged_before_the_next_request
}

/// How many of a hundred requests in turn are let through to a service that answers all of them
/// well.
async fn let_through(bench: &Bench, policy: Policy) -> usize {
    let content = async |_| Ok::<_, Infallible>(Response::new(()));
    let service = RateLimitLayer::new(bench.limiter([policy]))
        .wrap_body()
        .layer(service_fn(content));
    let mut let_through = 0;
    for _ in 0..100 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        let_through += usize::from(response.status() == 200);
    }
    let_through
}

async fn what_does_not_count_is_there_for_the_next_request(bench: &Bench) {
    for limit in [Limit::fixed_window(1, HOUR), Limit::gcra(1, HOUR)] {
        let policy = Policy::new("logins", limit).by(alice);
        let policy = policy.count_if(is_unauthorized);
        assert_eq!(let_through(bench, policy).await, 100, "{limit}");
    }
}

async fn what_was_too_little_is_charged_before_the_next_request(bench: &Bench) {
    let policy = Policy::new("rows", Limit::fixed_window(10, HOUR)).by(alice);
    let policy = policy.settle(|_: &ResponseHead<'_>| 10);
    assert_eq!(let_through(bench, policy).await, 1);
}
