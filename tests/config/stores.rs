//! `store` and `prefix`: every kind of server, from a file.

use tower_throttle::Limiter;

use super::{read, refusal, with_policy};
use support::cluster::Cluster;
use support::redis::Server;
use support::sentinel::Watched;

/// The addresses listed in the store's documentation.
const ADDRESSES: [&str; 7] = [
    "memory",
    "redis://user:secret@h:1/2",
    "redis+unix:///run/redis.sock",
    "redis-sentinel://h:1,i:2/main",
    "redis-cluster://h:1,i:2",
    "redis://[::1]:6379",
    "redis-cluster://user:secret@[::1]:1,i:2",
];

const OVER_TLS: [&str; 3] = [
    "rediss://user:secret@h:1/2",
    "rediss-sentinel://h:1,i:2/main",
    "rediss-cluster://h:1,i:2",
];

/// Gives decisions far more time than they take here, as a busy machine may need it.
fn file(store: &str) -> String {
    let policy = "name = \"client\"\nalgorithm = \"gcra\"\nlimit = \"100/min\"\nkey = \"user\"";
    let lines = format!("{store:?}\nprefix = \"demo\"\ntimeout = \"5s\"");
    with_policy(policy).replacen("\"memory\"", &lines, 1)
}

#[tokio::test]
async fn a_file_may_name_every_kind_of_store() {
    for store in ADDRESSES {
        read(&file(store)).connect_lazy().expect(store);
    }
}

#[cfg(feature = "redis-tls")]
#[tokio::test]
async fn a_file_may_name_every_kind_of_store_over_tls() {
    for store in OVER_TLS {
        read(&file(store)).connect_lazy().expect(store);
    }
}

#[cfg(not(feature = "redis-tls"))]
#[test]
fn a_store_over_tls_is_refused_with_the_feature_that_it_needs() {
    for store in OVER_TLS {
        let refused = refusal(&file(store));
        let (scheme, _) = store.split_once(':').unwrap();
        let expected = format!("{scheme}:// needs the feature \"redis-tls\" of tower-throttle");
        assert!(refused.starts_with("line 1: store: "), "{refused}");
        assert!(refused.contains(&expected), "{refused}");
    }
}

#[test]
fn an_address_that_makes_no_sense_is_refused_with_what_is_wrong() {
    for (store, reason) in [
        ("redis-sentinel://:hunter2@h:1", "name of the master"),
        ("redis-cluster://:hunter2@h:1/1", "only database 0"),
        ("redis-cluster://:hunter2@h:1,i:nope", "did not parse"),
        ("redis://:hunter2#@h", "%23"),
        ("http://:hunter2@h", "its scheme is unknown"),
        ("memoyr", "no store has this name"),
    ] {
        let refused = refusal(&file(store));
        assert!(refused.starts_with("line 1: store: "), "{refused}");
        assert!(refused.contains(reason), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

/// What is first tried in memory would otherwise be refused in production.
#[test]
fn a_prefix_that_makes_no_sense_is_refused_over_every_store() {
    for store in ADDRESSES {
        let text = file(store).replacen("\"demo\"", "\"a{b\"", 1);
        let refused = refusal(&text);
        assert!(refused.starts_with("line 2: prefix: "), "{refused}");
    }
}

async fn counts(limiter: &Limiter) {
    let decision = limiter.check("client", "alice").await.unwrap();
    assert_eq!((decision.store_failure(), decision.remaining()), (None, 99));
}

fn is_all_prefixed(servers: &[Server]) -> bool {
    let mut keys = servers.iter().flat_map(Server::keys).peekable();
    keys.peek().is_some() && keys.all(|key| key.starts_with("demo:"))
}

#[tokio::test]
async fn a_file_counts_in_a_cluster() {
    let cluster = Cluster::start();
    counts(&read(&file(&cluster.url())).connect().await.unwrap()).await;
    assert!(is_all_prefixed(&cluster.masters));
}

#[tokio::test]
async fn a_file_counts_on_the_master_that_sentinel_names() {
    let watched = Watched::start_with(&[], "");
    counts(&read(&file(&watched.url())).connect().await.unwrap()).await;
    assert!(is_all_prefixed(&[watched.master]));
}
