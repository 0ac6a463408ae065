//! Questions that are asked on one runtime and left on another.

use std::pin::Pin;

use futures_util::poll;
use tokio::runtime::{Builder, Runtime};
use tower_throttle::{DAY, Key, Limit, Limiter, Policy};

use super::costs::request;
use super::left::{patient, pause, unpause};
use support::redis::Server;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Policies whose requests give back what they have taken if their clients leave.
fn policies() -> [Policy; 2] {
    [
        Policy::new("api", Limit::concurrency(1).lease(DAY)),
        Policy::new("api", Limit::gcra(1, DAY)).max_wait(DAY),
    ]
}

type Request = Pin<Box<dyn Future<Output = u16>>>;

/// A request whose question was sent on this runtime.
fn asked(runtime: &Runtime, server: &Server, limiter: &Limiter) -> Request {
    pause(server);
    let limiter = limiter.clone();
    let mut request: Request = Box::pin(async move { request(&limiter, "/").await });
    assert!(runtime.block_on(async { poll!(&mut request) }).is_pending());
    request
}

async fn all_is_given_back(limiter: &Limiter) {
    limiter.flush().await;
    let left = limiter.peek("api", Key::everybody()).await.unwrap();
    assert_eq!(left.remaining(), 1, "{limiter:?}");
}

#[test]
fn what_a_standing_runtime_asked_is_given_back_on_another() {
    for policy in policies() {
        let (server, here, idle) = (Server::start(), runtime(), runtime());
        let limiter = here.block_on(patient(&server, [policy]));
        let request = asked(&idle, &server, &limiter);
        here.block_on(async {
            drop(request);
            unpause(&server);
            all_is_given_back(&limiter).await;
        });
    }
}

#[test]
fn what_an_ending_runtime_left_is_given_back_where_asked() {
    let (server, here, short) = (Server::start(), runtime(), runtime());
    let [places, _] = policies();
    let limiter = here.block_on(patient(&server, [places]));
    let request = asked(&here, &server, &limiter);
    short.block_on(async { drop(request) });
    drop(short);
    unpause(&server);
    here.block_on(all_is_given_back(&limiter));
}
