//! Pools made by users, whatever their configuration.

use std::time::Duration;

use deadpool_redis::{Manager, Pool, Runtime};
use redis::{AsyncConnectionConfig, IntoConnectionInfo};
use tower_throttle::{MINUTE, RedisStore};

use crate::connect::{limiter, take};
use support::proxy::{Proxy, Way};
use support::redis::Server;

/// How long the pool's client waits for a reply.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

fn pool(url: &str) -> Pool {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
    let server = url.into_connection_info().unwrap();
    let manager = Manager::new_with_config(server, config).unwrap();
    let pool = Pool::builder(manager).runtime(Runtime::Tokio1);
    pool.build().unwrap()
}

#[tokio::test]
async fn a_reply_is_awaited_as_long_as_the_limiter_says_not_its_pool() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let limiter = limiter(RedisStore::from_pool(pool(&proxy.url())), MINUTE);
    // The replies to a connection's first commands are the pool's business: on a busy machine they
    // may be late.
    let connected = async {
        while take(&limiter).await.store_failure().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let connected = tokio::time::timeout(MINUTE, connected).await;
    connected.expect("it never connects");
    proxy.set(Way::Delay(2 * RESPONSE_TIMEOUT));
    assert_eq!(take(&limiter).await.store_failure(), None);
}
