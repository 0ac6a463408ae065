//! Nodes without a host name, in a cluster that calls its nodes by host names.

use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{DAY, Limit, RedisStore, StoreErrorKind};

use crate::connect::cluster::SUBJECTS;
use crate::connect::{GENEROUS, PLENTY, limiter, text_of};
use support::asking::{answer_of, check_of};
use support::cluster::Cluster;

/// No node has been told its name. `None` if the server calls nodes only by their addresses, as
/// Redis 6.2 does.
fn nameless() -> Option<Cluster> {
    let cluster = Cluster::start();
    let told = cluster.masters.iter().all(|master| {
        let told = master.try_query::<()>((
            "CONFIG",
            "SET",
            "cluster-preferred-endpoint-type",
            "hostname",
        ));
        if let Err(error) = &told {
            let unknown = "Unsupported CONFIG parameter";
            assert!(error.to_string().contains(unknown), "{error}");
        }
        told.is_ok()
    });
    told.then_some(cluster)
}

#[tokio::test]
async fn a_node_without_a_name_is_found_by_its_address() {
    let Some(cluster) = nameless() else { return };
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
    }
    for master in &cluster.masters {
        assert!(!master.keys().is_empty());
    }
}

#[tokio::test]
async fn a_slot_moved_to_a_nameless_node_is_found() {
    let Some(cluster) = nameless() else { return };
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    let _ = limiter.check("api", "alice").await.unwrap();
    let (from, key) = cluster.master_of(":api");
    let to = (from + 1) % 3;
    let slot = cluster.begin_to_move(&key, from, to);
    cluster.move_key(&key, from, to);
    cluster.end_move(slot, from, to);
    let decision = limiter.check("api", "alice").await.unwrap();
    assert_eq!(decision.store_failure(), None);
    assert_eq!(cluster.master_of(":api").0, to);
}

/// Until it has moved, only the old node tells which one takes it over.
#[tokio::test]
async fn a_slot_moving_to_a_nameless_node_is_said_to_need_a_name() {
    let Some(cluster) = nameless() else { return };
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store.clone(), GENEROUS);
    let _ = limiter.check("api", "alice").await.unwrap();
    let (from, key) = cluster.master_of(":api");
    let to = (from + 1) % 3;
    let slot = cluster.begin_to_move(&key, from, to);
    cluster.move_key(&key, from, to);
    let policy = PolicyId::new("api");
    let check = check_of(
        &policy,
        "alice",
        &Limit::fixed_window(PLENTY, DAY),
        Action::consume(1),
    );
    let error = answer_of(&store, &[check]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(
        text_of(&error).contains("cluster-announce-hostname"),
        "{}",
        text_of(&error)
    );
    cluster.end_move(slot, from, to);
}
