//! A cluster of which all masters are gone and other nodes remain.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tower_throttle::SECOND;

use crate::faults::one_node::limiter_over;
use support::cluster::Cluster;
use support::redis::Server;

/// The URL may name nodes that are not masters. Here one closes every connection, and the other
/// keeps telling who the masters were.
#[tokio::test]
async fn nobody_connects_to_the_others_all_the_time() {
    let mut cluster = Cluster::with_replicas();
    let replica = &cluster.replicas[0];
    let (closed, refused) = refusing().await;
    let url = format!(
        "redis-cluster://127.0.0.1:{closed},127.0.0.1:{}",
        replica.port()
    );
    let limiter = limiter_over(&url).await;
    let ask = async || limiter.peek("api", "alice").await.unwrap().store_failure();
    // After an answer, the store is asked for ten seconds before the circuit breaker opens.
    assert_eq!(ask().await, None);
    cluster.masters.iter_mut().for_each(Server::kill);
    let count = || [refused.load(Ordering::Relaxed), replica.connections()];
    let before = count();
    let gone = Instant::now();
    while gone.elapsed() < 3 * SECOND {
        assert!(ask().await.is_some());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let now = count();
    // Two a second, one from before, and the one that looks at it.
    let most = gone.elapsed().as_millis() as usize / 500 + 2;
    let new = [0, 1].map(|node| now[node] - before[node]);
    assert!(
        new.iter().all(|new| *new <= most),
        "{new:?}, {most} at most"
    );
}

/// The port of a listener that closes each connection at once, and how many those were.
async fn refusing() -> (u16, Arc<AtomicUsize>) {
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = door.local_addr().unwrap().port();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    tokio::spawn(async move {
        while door.accept().await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    (port, refused)
}
