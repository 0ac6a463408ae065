//! Host names that do not resolve.

use std::time::Instant;

use tower_throttle::StoreErrorKind::{TimedOut, Unreachable};
use tower_throttle::{RedisStore, SECOND};

use crate::faults::stage::{limiter, outage};

/// Names under this never exist, see RFC 6761.
const URLS: [&str; 3] = [
    "redis://store.invalid",
    "redis-sentinel://store.invalid/main",
    "redis-cluster://store.invalid",
];

/// Even if the resolver does not answer: a connection attempt takes 2 s at most.
#[tokio::test]
async fn a_host_name_that_does_not_resolve_is_reported_at_start_up() {
    for url in URLS {
        let started = Instant::now();
        let error = RedisStore::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), Unreachable, "{url}: {error}");
        assert!(started.elapsed() < 10 * SECOND, "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn with_an_unknown_host_the_failure_modes_decide() {
    for url in URLS {
        let store = RedisStore::builder(url).connect_lazy().unwrap();
        let limiter = limiter(store);
        let outage = outage(&limiter, SECOND).await;
        outage.print(url, SECOND);
        // At once, or at the deadline if no resolver answers.
        outage.assert_reasons(&[Unreachable, TimedOut]);
    }
}
