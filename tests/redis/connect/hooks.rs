//! Connections that the application makes itself.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisResult};
use tower_throttle::{MINUTE, RedisStore, RedisStoreBuilder, StoreErrorKind};

use crate::connect::{limiter, take};
use support::proxy::Proxy;
use support::redis::Server;
use support::until::until;

async fn connection_to(url: &str) -> RedisResult<MultiplexedConnection> {
    let client = Client::open(url)?;
    client.get_multiplexed_async_connection().await
}

fn builder_to(url: String) -> RedisStoreBuilder {
    RedisStore::builder_with(move || {
        let url = url.clone();
        async move { connection_to(&url).await }
    })
}

fn text_of(error: &tower_throttle::StoreError) -> String {
    error.inner().unwrap().to_string()
}

#[tokio::test]
async fn decisions_go_over_connections_of_the_application() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = builder_to(proxy.url()).prefix("shop").connect().await;
    let limiter = limiter(store.unwrap(), MINUTE);
    for _ in 0..3 {
        assert_eq!(take(&limiter).await.store_failure(), None);
    }
    assert_eq!(proxy.accepted().len(), 1, "one is kept");
    assert!(server.keys().iter().all(|key| key.starts_with("shop:")));
    // What breaks is made anew.
    proxy.cut();
    until("it connects again", async || {
        take(&limiter).await.store_failure().is_none()
    })
    .await;
    assert_eq!(proxy.accepted().len(), 2);
}

#[tokio::test]
async fn a_connection_to_a_replica_is_refused_and_another_one_made() {
    let master = Server::start();
    let port = master.port().to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    let made = Arc::new(AtomicUsize::new(0));
    let urls = [replica.url(), master.url()];
    let counts = Arc::clone(&made);
    let store = RedisStore::builder_with(move || {
        let url = urls[counts.fetch_add(1, Ordering::Relaxed).min(1)].clone();
        async move { connection_to(&url).await }
    });
    let store = store.connect_lazy().unwrap();
    let limiter = limiter(store, MINUTE);
    until("it is connected to the master", async || {
        take(&limiter).await.store_failure().is_none()
    })
    .await;
    assert!(made.load(Ordering::Relaxed) > 1);
    assert_eq!(replica.calls("evalsha"), 0);

    let error = builder_to(replica.url()).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    assert!(text_of(&error).contains("replica"), "{error}");
}

#[tokio::test]
async fn every_error_of_the_application_is_reported() {
    for refused in [
        RedisStore::builder_with(async || Err("no lease on the tunnel")),
        RedisStore::builder_with(async || Err("no lease on the tunnel".to_owned())),
        RedisStore::builder_with(async || Err(std::io::Error::other("no lease on the tunnel"))),
    ] {
        let error = refused.connect().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unreachable);
        assert_eq!(text_of(&error), "no lease on the tunnel");
    }
    // The client's own errors have the advice that a URL gets.
    let server = Server::start_with(&["--requirepass", "right"]);
    let wrong = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let error = builder_to(wrong).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
}

#[tokio::test]
async fn an_application_without_connection_is_asked_again() {
    let server = Server::start();
    for hangs in [false, true] {
        let works = Arc::new(AtomicBool::new(false));
        let (is_working, url) = (Arc::clone(&works), server.url());
        let store = RedisStore::builder_with(move || {
            let (works, url) = (is_working.load(Ordering::Relaxed), url.clone());
            async move {
                match works {
                    true => connection_to(&url).await.map_err(|error| error.to_string()),
                    false if hangs => pending().await,
                    false => Err("not yet".to_owned()),
                }
            }
        });
        let store = store.connect_lazy().unwrap();
        let limiter = limiter(store, Duration::from_millis(50));
        assert!(take(&limiter).await.store_failure().is_some());
        works.store(true, Ordering::Relaxed);
        until("it is connected", async || {
            take(&limiter).await.store_failure().is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn a_hanging_application_is_awaited_as_long_as_a_connection() {
    let hangs = || pending::<Result<MultiplexedConnection, String>>();
    let connected = RedisStore::builder_with(hangs).connect();
    let connected = tokio::time::timeout(MINUTE, connected).await;
    let error = connected.expect("it waits for ever").unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
}

#[tokio::test]
async fn settings_that_only_a_url_has_are_refused() {
    let store = builder_to("redis://127.0.0.1".to_owned());
    let credentials = tower_throttle::RedisCredentials::new("user", "password");
    let error = store.credentials(credentials).connect_lazy().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
}
