//! How a store finds out that it is back, and that it does nothing more.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::store::{DenyCache, Store};
use tower_throttle::{MemoryStore, RedisStore, SECOND};

use support::proxy::{Proxy, Way};
use support::redis::Server;

/// Far longer than an answer takes.
const GENEROUS: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_store_that_answers_has_recovered_whatever_is_around_it() {
    let server = Server::start();
    let store = server.store().await;
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    for store in [
        Box::new(DenyCache::new(shared)) as Box<dyn Store>,
        Box::new(store),
    ] {
        let recovered = store.recovered(GENEROUS).expect("it can tell");
        tokio::time::timeout(GENEROUS, recovered).await.unwrap();
    }
    assert!(MemoryStore::new().recovered(GENEROUS).is_none());
}

/// It connects by itself, and only while somebody waits.
#[tokio::test]
async fn connections_are_made_only_while_somebody_waits_for_recovery() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    proxy.set(Way::Blackhole);
    let within = Duration::from_millis(100);
    let waited = tokio::time::timeout(2 * SECOND, store.recovered(within).unwrap()).await;
    assert!(waited.is_err(), "there is no way to it");
    // An attempt that has begun lives for as long as connecting may take.
    tokio::time::sleep(3 * SECOND).await;
    let before = proxy.accepted().len();
    assert!(before > 1, "it tried");
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(proxy.accepted().len(), before);
    proxy.set(Way::Pass);
    let recovered = store.recovered(GENEROUS).unwrap();
    tokio::time::timeout(GENEROUS, recovered).await.unwrap();
}

/// An answer too late for decisions does not count.
#[tokio::test]
async fn a_store_that_answers_too_late_has_not_recovered() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    proxy.set(Way::Delay(SECOND / 5));
    let within = Duration::from_millis(100);
    let waited = tokio::time::timeout(2 * SECOND, store.recovered(within).unwrap()).await;
    assert!(waited.is_err(), "no answer came in time");
    let recovered = store.recovered(GENEROUS).unwrap();
    tokio::time::timeout(GENEROUS, recovered).await.unwrap();
}
