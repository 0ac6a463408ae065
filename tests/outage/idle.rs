//! A connection that nobody has used for a while may be gone, and nobody has seen it go.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::{
    BreakerState, DAY, FailureMode, Limit, Limiter, Policy, RedisStore, SECOND, StoreErrorKind,
};

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

/// Why a decision was not the store's.
async fn failure(limiter: &Limiter) -> Option<StoreErrorKind> {
    let decision = limiter.check("api", "alice").await.unwrap();
    decision.store_failure()
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

/// Nothing tells that it is gone: who asks first waits for his deadline, with all who ask until then.
#[tokio::test]
async fn an_idle_connection_that_is_dropped_silently_costs_one_decision() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let connected = RedisStore::connect(&proxy.url()).await.unwrap();
    for store in [connected, from_pool(&proxy.url())] {
        let limiter = limiter(store, Duration::from_millis(300));
        assert_eq!(failure(&limiter).await, None);
        for _ in 0..3 {
            proxy.forget();
            goes_by(2 * SECOND).await;
            let together = join_all((0..3).map(|_| failure(&limiter))).await;
            assert_eq!(together, [Some(StoreErrorKind::TimedOut); 3]);
            assert_eq!(failure(&limiter).await, None);
        }
    }
    // One for each that was dropped.
    assert_eq!(proxy.accepted().len(), 8);
}

/// It is not waited for by those who have time left when it is found to be gone.
#[tokio::test]
async fn an_idle_connection_that_is_dropped_silently_costs_none_who_come_late() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let limiter = limiter(store, 2 * SECOND);
    assert_eq!(failure(&limiter).await, None);
    proxy.forget();
    goes_by(2 * SECOND).await;
    let late = async {
        tokio::time::sleep(SECOND).await;
        failure(&limiter).await
    };
    let (first, late) = tokio::join!(failure(&limiter), late);
    assert_eq!((first, late), (Some(StoreErrorKind::TimedOut), None));
}

/// Nor does anybody fail who waits beside one that goes away.
#[tokio::test]
async fn an_idle_connection_that_answers_is_kept_by_those_who_wait_for_it() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let limiter = limiter(store, SECOND);
    assert_eq!(failure(&limiter).await, None);
    proxy.set(Way::Delay(Duration::from_millis(20)));
    for _ in 0..5 {
        goes_by(2 * SECOND).await;
        let gone = tokio::time::timeout(Duration::from_millis(1), failure(&limiter));
        let (gone, stays) = tokio::join!(gone, failure(&limiter));
        assert!(gone.is_err());
        assert_eq!(stays, None);
    }
    assert_eq!(proxy.accepted().len(), 1);
}

#[tokio::test]
async fn an_idle_connection_that_answers_is_kept_where_this_process_stands_still() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let limiter = limiter(store, Duration::from_millis(100));
    assert_eq!(failure(&limiter).await, None);
    for _ in 0..5 {
        goes_by(2 * SECOND).await;
        let stands_still = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            std::thread::sleep(Duration::from_millis(150));
        };
        let asked = join_all((0..3).map(|_| failure(&limiter)));
        let (failures, ()) = tokio::join!(asked, stands_still);
        assert_eq!(failures, [None; 3]);
    }
    assert_eq!(proxy.accepted().len(), 1);
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
