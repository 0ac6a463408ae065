//! Remembered denials in a cluster, where permits of one subject are given back when another
//! subject is denied.

use tokio::task::JoinHandle;
use tower_throttle::store::Action;
use tower_throttle::store::{Decisions, PolicyId};
use tower_throttle::{DAY, Limit, RedisStore};

use support::asking::{answer_of, check_of};
use support::cluster::Cluster;
use support::until::until;

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

impl Apart {
    /// A question that holds the first policy's only permit until its second policy has decided.
    async fn hold_for_a_while(&self) -> JoinHandle<Decisions> {
        let take = [Action::acquire(1); 2];
        ask(&self.other, &self.policies[1..], &take).await;
        self.cluster.masters[self.second_is_on].signal("STOP");
        let (store, policies) = (self.store.clone(), self.policies.clone());
        let both = tokio::spawn(async move { ask(&store, &policies, &take).await });
        while self.look_at_first(&self.other).await > 0 {
            tokio::task::yield_now().await;
        }
        for is_remembered in [false, true] {
            let denied = ask(&self.store, &self.policies[..1], &take).await[0];
            assert!(!denied.is_allowed());
            assert_eq!(denied.is_remembered(), is_remembered);
        }
        both
    }

    async fn look_at_first(&self, store: &RedisStore) -> u64 {
        ask(store, &self.policies[..1], &[Action::look()]).await[0].remaining()
    }

    async fn take_first(&self) -> bool {
        ask(&self.store, &self.policies[..1], &[Action::acquire(1)]).await[0].is_allowed()
    }
}

#[tokio::test]
async fn permits_back_from_anothers_denial_are_free_with_it() {
    let apart = Apart::new().await;
    let both = apart.hold_for_a_while().await;
    apart.cluster.masters[apart.second_is_on].signal("CONT");
    assert_eq!(both.await.unwrap().denied_by(), Some(1));
    assert!(apart.take_first().await);
}

#[tokio::test]
async fn permits_of_a_caller_who_left_are_not_denied_from_memory() {
    let apart = Apart::new().await;
    let both = apart.hold_for_a_while().await;
    both.abort();
    until("what was taken is there again", async || {
        apart.take_first().await
    })
    .await;
    apart.cluster.masters[apart.second_is_on].signal("CONT");
}
