//! An endpoint in front of a cluster: it has the rules of one, all slots, and does not tell its
//! nodes, as those of managed services. The only node of a cluster whose user may not ask for the
//! slots stands in for it.

use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{DAY, Limit, RedisStore, StoreErrorKind};

use crate::connect::cluster::SUBJECTS;
use crate::connect::load::used;
use crate::connect::{GENEROUS, limiter, text_of};
use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;
use support::redis::Server;
use support::rights::{USER, documented_rights, user_with};
use support::sentinel::until;

fn with_all_slots() -> Server {
    let server = Server::start_with(&["--cluster-enabled", "yes"]);
    let slots: Vec<_> = (0..16_384).collect();
    server.query::<()>(("CLUSTER", "ADDSLOTS", slots));
    until("it serves them", || {
        let info: String = server.query(("CLUSTER", "INFO"));
        info.contains("cluster_state:ok")
    });
    server
}

/// A user with the documented rights for a single server: none for `CLUSTER`, nor for `ASKING`.
fn endpoint() -> (Server, String) {
    let server = with_all_slots();
    user_with(&server, documented_rights());
    let url = format!("redis-cluster://{USER}:secret@127.0.0.1:{}", server.port());
    (server, url)
}

/// Each as one question about many keys, and many questions at once, of which a single server would
/// put several into one script.
#[tokio::test]
async fn an_endpoint_that_tells_no_nodes_is_counted_on() {
    let (_server, url) = endpoint();
    let store = RedisStore::connect(&url).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        for subject in SUBJECTS {
            let limiter = limiter.clone();
            asking.spawn(async move { limiter.check("api", subject).await.unwrap() });
        }
    }
    for decision in asking.join_all().await {
        assert_eq!(decision.store_failure(), None);
    }
    for subject in SUBJECTS {
        assert_eq!(used(&limiter, subject).await, 20, "{subject}");
    }
}

/// Policies with keys in different slots: all or nothing, by several scripts.
#[tokio::test]
async fn several_subjects_are_decided_together_on_an_endpoint() {
    let (_server, url) = endpoint();
    let store = RedisStore::builder(&url)
        .wait_for_other_nodes(GENEROUS)
        .connect();
    let store = store.await.unwrap().without_deny_cache();
    let [many, few] = ["many", "few"].map(PolicyId::new);
    let [hundred, two] = [100, 2].map(|permits| Limit::fixed_window(permits, DAY));
    for nth in 1..=4 {
        let checks = [
            check_of(&many, "everybody", &hundred, Action::acquire(1)),
            check_of(&few, "alice", &two, Action::acquire(1)),
        ];
        let decisions = pending_answer_of(&store, &checks).await.unwrap();
        assert!(
            decisions
                .iter()
                .all(|decision| decision.store_failure().is_none())
        );
        assert_eq!(decisions[1].is_allowed(), nth <= 2);
    }
    let look = check_of(&many, "everybody", &hundred, Action::look());
    let left = pending_answer_of(&store, &[look]).await.unwrap()[0].remaining();
    assert_eq!(left, 98, "what was denied has taken something");
}

#[tokio::test]
async fn an_endpoint_that_is_connected_to_lazily_is_counted_on() {
    let (_server, url) = endpoint();
    let store = RedisStore::builder(&url).connect_lazy().unwrap();
    let limiter = limiter(store, GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
    }
}

/// The advice leads to what works.
#[tokio::test]
async fn an_endpoint_behind_a_single_servers_url_names_the_remedy() {
    let (server, works) = endpoint();
    let url = format!("redis://{USER}:secret@127.0.0.1:{}", server.port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert!(
        text_of(&error).contains("use redis-cluster://"),
        "{}",
        text_of(&error)
    );
    RedisStore::connect(&works).await.unwrap();
}

#[tokio::test]
async fn a_missing_permission_of_an_endpoint_is_named() {
    let server = with_all_slots();
    let rights = documented_rights();
    user_with(
        &server,
        rights.into_iter().filter(|right| *right != "+zadd"),
    );
    let url = format!("redis-cluster://{USER}:secret@127.0.0.1:{}", server.port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(
        text_of(&error).contains("grant it +zadd"),
        "{}",
        text_of(&error)
    );
}

/// There is no endpoint that has all slots: each question about the others would take two trips.
#[tokio::test]
async fn nodes_that_do_not_tell_each_other_s_slots_are_no_endpoint() {
    let cluster = Cluster::start();
    for node in &cluster.masters {
        user_with(node, documented_rights());
    }
    for node in &cluster.masters {
        let url = format!("redis-cluster://{USER}:secret@127.0.0.1:{}", node.port());
        let error = RedisStore::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration);
        let told = text_of(&error);
        assert!(told.contains("+cluster|slots"), "{told}");
        assert!(told.contains(&format!(":{}", node.port())), "{told}");
    }
    // Who does not try it out at the start is redirected.
    let url = format!(
        "redis-cluster://{USER}:secret@127.0.0.1:{}",
        cluster.masters[0].port()
    );
    let limiter = limiter(RedisStore::builder(&url).connect_lazy().unwrap(), GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
        assert_eq!(used(&limiter, subject).await, 1, "{subject}");
    }
}

/// The error names another node.
#[tokio::test]
async fn one_node_that_may_not_be_asked_for_the_slots_is_passed_over() {
    let cluster = Cluster::start();
    for (position, node) in cluster.masters.iter().enumerate() {
        let further = ["+asking", "+cluster|slots"];
        let rights = documented_rights().into_iter();
        user_with(
            node,
            rights.chain(further[..1 + position.min(1)].iter().copied()),
        );
    }
    let [first, second] = [0, 1].map(|position: usize| cluster.masters[position].port());
    let url = format!("redis-cluster://{USER}:secret@127.0.0.1:{first},127.0.0.1:{second}");
    let limiter = limiter(RedisStore::connect(&url).await.unwrap(), GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
    }
    let rejected = cluster
        .masters
        .iter()
        .map(|node| node.rejected_calls("evalsha"));
    assert_eq!(rejected.sum::<u64>(), 0, "a question was redirected");
}
