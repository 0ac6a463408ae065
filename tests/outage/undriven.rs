//! A process of which one runtime is driven only while a thread blocks on it, and what that one has begun
//! when it stands still.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_throttle::{FailureMode, Limit, Limiter, MINUTE, Policy, RedisStore};

use crate::back;
use crate::support::cluster::Cluster;
use crate::support::proxy::{Proxy, Way};
use crate::support::redis::Server;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The way to the server hangs while the one runtime asks, and not any more when the other does.
fn asked_on_another(proxy: &Proxy, url: &str) {
    let (idle, busy) = (runtime(), runtime());
    let store = RedisStore::builder(url).connect_lazy().unwrap();
    let policy = Policy::new("api", Limit::gcra(1_000, MINUTE));
    let limiter = Limiter::builder(store)
        .policy(policy.on_store_failure(FailureMode::Deny))
        .timeout(Duration::from_millis(200))
        .build()
        .unwrap();
    proxy.set(Way::Blackhole);
    let decision = idle.block_on(limiter.check("api", "alice")).unwrap();
    assert!(decision.store_failure().is_some());
    proxy.set(Way::Pass);
    busy.block_on(back(&limiter, "api"));
}

#[test]
fn an_attempt_to_connect_holds_up_nobody_else() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    asked_on_another(&proxy, &proxy.url());
}

#[test]
fn an_attempt_to_find_the_nodes_of_a_cluster_holds_up_nobody_else() {
    let cluster = Cluster::start();
    let proxy = Proxy::to(cluster.masters[0].port());
    let url = format!("redis-cluster://127.0.0.1:{}", proxy.port());
    asked_on_another(&proxy, &url);
}
