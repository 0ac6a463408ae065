//! A connection that nobody has used for a while may be gone, and nobody has seen it go.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::{BreakerState, DAY, FailureMode, Limit, Limiter, Policy, RedisStore, SECOND};

use crate::support::proxy::{Proxy, Way};
use crate::support::redis::Server;
use crate::{back, until};

/// Of a pool as its users make one.
fn from_pool(url: &str) -> RedisStore {
    let pool =
        deadpool_redis::Config::from_url(url).create_pool(Some(deadpool_redis::Runtime::Tokio1));
    RedisStore::from_pool(pool.unwrap())
}

fn limiter(store: RedisStore, timeout: Duration) -> Limiter {
    // No permit comes back within a minute, however long the reconnects take.
    let policy = Policy::new("api", Limit::gcra(1_000, DAY)).on_store_failure(FailureMode::Deny);
    let limiter = Limiter::builder(store).policy(policy);
    limiter.timeout(timeout).build().unwrap()
}

/// Nobody asks for so long.
async fn goes_by(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_was_idle_costs_no_decision() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let connected = RedisStore::connect(&proxy.url()).await.unwrap();
    for store in [connected, from_pool(&proxy.url())] {
        let limiter = limiter(store, 30 * SECOND);
        for _ in 0..5 {
            let decision = limiter.check("api", "alice").await.unwrap();
            assert_eq!(decision.store_failure(), None);
            proxy.cut();
            goes_by(2 * SECOND).await;
        }
    }
    // Each was counted once.
    let last = limiter(
        RedisStore::connect(&proxy.url()).await.unwrap(),
        30 * SECOND,
    );
    assert_eq!(last.peek("api", "alice").await.unwrap().remaining(), 990);
}

/// What a client of its own does not wait for is no answer of the server.
#[tokio::test]
async fn a_connection_of_a_pool_that_swallows_everything_is_made_anew() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    // Longer than the client waits unless it is told otherwise.
    let limiter = limiter(from_pool(&proxy.url()), Duration::from_millis(800));
    assert_eq!(
        limiter.check("api", "alice").await.unwrap().store_failure(),
        None
    );
    proxy.set(Way::Blackhole);
    until("it opens", async || {
        join_all((0..5).map(|_| limiter.peek("api", "alice"))).await;
        limiter.breaker() == BreakerState::Open
    })
    .await;
    proxy.set(Way::Pass);
    back(&limiter, "api").await;
}
