//! Clusters, and servers behind Sentinel.

use tower_throttle::StoreErrorKind::{Busy, Interrupted, TimedOut, Unreachable};
use tower_throttle::{RedisStore, SECOND};

use crate::faults::stage::{SOON, limiter, outage, outage_with, recovery};
use support::cluster::Cluster;
use support::proxy::Proxy;
use support::redis::Server;
use support::sentinel::{NAME, Watched, until};

#[tokio::test]
async fn a_cluster_that_hangs() {
    let cluster = Cluster::start();
    let limiter = limiter(RedisStore::connect(&cluster.url()).await.unwrap());
    recovery(&limiter).await;
    let all = |signal| {
        let signalled = cluster.masters.iter().map(|master| master.signal(signal));
        signalled.for_each(drop);
    };
    let connections = || cluster.masters.iter().map(Server::connections);
    let before: Vec<_> = connections().collect();
    all("STOP");
    // Each node is left alone by itself, long before all of them are.
    let outage = outage_with(&limiter, 3 * SECOND, Unreachable).await;
    all("CONT");
    // They accept earlier connection attempts first, and this one after them.
    let made = connections()
        .zip(before)
        .map(|(after, before)| after - before - 1);
    let outage = outage.with_connections(made.max().unwrap());
    // They may have taken each other for dead, and are a cluster again a moment later.
    until("it is a cluster again", || {
        cluster.masters.iter().all(|master| {
            let info = master.try_query::<String>(("CLUSTER", "INFO"));
            info.is_ok_and(|info| info.contains("cluster_state:ok"))
        })
    });
    let recovery = recovery(&limiter).await;
    outage.print("a cluster that hangs", recovery);
    outage.assert_no_other_reasons(&[TimedOut, Unreachable]);
    outage.assert_failed(Unreachable);
    outage.assert_few_connections();
    outage.assert_tried();
    assert!(recovery < SOON, "{recovery:?}");
}

/// While one slot has no master, a cluster serves none.
#[tokio::test]
async fn a_cluster_that_is_down() {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    let slots = |command: &str, slots: std::ops::Range<u16>| {
        server.query::<()>(("CLUSTER", command, slots.collect::<Vec<_>>()));
    };
    let info = || server.query::<String>(("CLUSTER", "INFO"));
    slots("ADDSLOTS", 0..16_384);
    until("it is a cluster", || info().contains("cluster_state:ok"));
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let limiter = limiter(RedisStore::connect(&url).await.unwrap());
    recovery(&limiter).await;
    slots("DELSLOTS", 0..1);
    until("it is down", || info().contains("cluster_state:fail"));
    let before = server.connections();
    let outage = outage(&limiter, 2 * SECOND).await;
    let outage = outage.with_connections(server.connections() - before - 1);
    slots("ADDSLOTS", 0..1);
    until("it is up", || info().contains("cluster_state:ok"));
    let recovery = recovery(&limiter).await;
    outage.print("CLUSTERDOWN", recovery);
    outage.assert_reasons(&[Busy]);
    outage.assert_few_connections();
    assert!(recovery < SOON, "{recovery:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_killed_and_replaced_by_its_replica() {
    let mut watched = Watched::start_with(&[], "");
    let sentinel = Proxy::to(watched.sentinel_port());
    let url = format!("redis-sentinel://127.0.0.1:{}/{NAME}", sentinel.port());
    let limiter = limiter(RedisStore::connect(&url).await.unwrap());
    recovery(&limiter).await;
    let before = sentinel.commands();
    watched.master.kill();
    let asking = tokio::spawn({
        let limiter = limiter.clone();
        async move { outage(&limiter, SECOND).await }
    });
    let outage = asking.await.unwrap();
    // Each attempt begins with a question to the Sentinel, over a connection that is kept.
    let asked = sentinel.commands() - before;
    let outage = outage.with_connections(asked as usize);
    tokio::task::block_in_place(|| {
        until("the replica is promoted", || {
            watched.replica.info("replication").contains("role:master")
        });
    });
    let recovery = recovery(&limiter).await;
    outage.print("a failover by Sentinel", recovery);
    outage.assert_reasons(&[Interrupted, Unreachable]);
    outage.assert_few_connections();
    outage.assert_tried();
    assert!(recovery < SOON, "{recovery:?}");
}
