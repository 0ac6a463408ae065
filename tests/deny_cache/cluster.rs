//! Remembered denials of a cluster, where what one subject's policies took is given back when another's
//! deny.

use tower_throttle::algorithm::Action;
use tower_throttle::{DAY, Decisions, Limit, PolicyId, RedisStore};

use super::support::asking::{answer_of, check_of};
use super::support::cluster::Cluster;

const ONE: Limit = Limit::fixed_window(1, DAY);

/// Two policies whose subjects are on different nodes.
struct Apart {
    cluster: Cluster,
    /// Remembers for so long that age ends nothing.
    store: RedisStore,
    other: RedisStore,
    policies: [(PolicyId, String); 2],
    second_is_on: usize,
}

impl Apart {
    async fn new() -> Self {
        let cluster = Cluster::without_full_coverage();
        let connect = || async { RedisStore::connect(&cluster.url()).await.unwrap() };
        let (store, other) = (connect().await, connect().await);
        let mut apart = Self {
            store: store.deny_cache_max_age(DAY),
            other: other.without_deny_cache(),
            policies: ["first", "second"].map(|name| (PolicyId::new(name), "0".to_owned())),
            second_is_on: 0,
            cluster,
        };
        let charge = [Action::Charge(1); 2];
        loop {
            ask(&apart.other, &apart.policies, &charge).await;
            let [first, second] =
                ["first", "second"].map(|name| apart.cluster.master_of(&format!(":{name}")).0);
            ask(&apart.other, &apart.policies, &[Action::Reset; 2]).await;
            if first != second {
                apart.second_is_on = second;
                return apart;
            }
            apart.policies[1].1.push('0');
        }
    }
}

async fn ask(store: &RedisStore, asked: &[(PolicyId, String)], actions: &[Action]) -> Decisions {
    let each = asked.iter().zip(actions);
    let checks: Vec<_> = each
        .map(|((policy, key), action)| check_of(policy, &**key, &ONE, *action))
        .collect();
    answer_of(store, &checks).await.unwrap()
}

#[tokio::test]
async fn what_was_taken_only_until_another_subject_denied_is_seen_with_that_denial() {
    let Apart {
        cluster,
        store,
        other,
        policies,
        second_is_on,
    } = Apart::new().await;
    let take = [Action::take(1); 2];
    ask(&other, &policies[1..], &take).await;
    cluster.masters[second_is_on].signal("STOP");
    let both = tokio::spawn({
        let (store, policies) = (store.clone(), policies.clone());
        async move { ask(&store, &policies, &take).await }
    });
    while ask(&other, &policies[..1], &[Action::look()]).await[0].remaining() > 0 {
        tokio::task::yield_now().await;
    }
    for is_remembered in [false, true] {
        let denied = ask(&store, &policies[..1], &take).await[0];
        assert!(!denied.is_allowed());
        assert_eq!(denied.is_remembered(), is_remembered);
    }
    cluster.masters[second_is_on].signal("CONT");
    assert_eq!(both.await.unwrap().denied_by(), Some(1));
    let allowed = ask(&store, &policies[..1], &take).await[0];
    assert!(allowed.is_allowed());
}
