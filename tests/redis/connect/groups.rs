//! Policies of a group over a cluster.

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Decisions, PolicyId};
use tower_throttle::{DAY, Limit, RedisStore};

use crate::connect::cluster::SUBJECTS;
use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;

/// Three policies of one group.
struct Group {
    cluster: Cluster,
    store: RedisStore,
    policies: [PolicyId; 3],
}

/// Plain takes have a script of their own.
const LIMITS: [[Limit; 3]; 2] = [
    [
        Limit::gcra(2, DAY),
        Limit::gcra(10, DAY),
        Limit::gcra(20, DAY),
    ],
    [
        Limit::fixed_window(2, DAY),
        Limit::gcra(10, DAY),
        Limit::sliding_counter(20, DAY),
    ],
];

impl Group {
    async fn new() -> Self {
        let cluster = Cluster::start();
        let store = cluster.patient().connect().await.unwrap();
        Self {
            cluster,
            // Every question must reach the servers.
            store: store.without_deny_cache(),
            policies: ["a", "b", "c"].map(|name| PolicyId::new(name).in_group("client")),
        }
    }

    /// Asks each policy about the subject at its position.
    async fn ask(&self, subjects: [&str; 3], limits: [Limit; 3], action: Action) -> Decisions {
        let each = self.policies.iter().zip(subjects).zip(limits);
        let checks: Vec<_> = each
            .map(|((policy, subject), limit)| check_of(policy, subject, &limit, action))
            .collect();
        pending_answer_of(&self.store, &checks).await.unwrap()
    }

    /// How many scripts each node has run; one that had to be sent first counts once.
    fn scripts(&self) -> Vec<u64> {
        let nodes = self.cluster.masters.iter();
        nodes.map(|node| node.calls("evalsha")).collect()
    }
}

fn remaining(decisions: &Decisions) -> Vec<u64> {
    decisions
        .iter()
        .map(|decision| decision.remaining())
        .collect()
}

#[tokio::test]
async fn a_group_is_one_key_and_one_script_on_the_node_of_its_subject() {
    for limits in LIMITS {
        let group = Group::new().await;
        for subject in SUBJECTS {
            let all = [subject; 3];
            let mut nodes = Vec::new();
            for left in [[1, 9, 19], [0, 8, 18], [0, 8, 18], [0, 8, 18]] {
                let before = group.scripts();
                let decisions = group.ask(all, limits, Action::consume(1)).await;
                assert_eq!(remaining(&decisions), left, "{subject}");
                let after = group.scripts().into_iter().zip(before);
                let ran: Vec<_> = after.map(|(after, before)| after - before).collect();
                assert_eq!(ran.iter().sum::<u64>(), 1, "{subject}: {ran:?}");
                nodes.push(ran);
            }
            assert!(nodes.iter().all(|ran| *ran == nodes[0]), "{nodes:?}");
            // A caller that one policy denies has taken nothing of the others.
            let looked = group.ask(all, limits, Action::look()).await;
            assert_eq!(remaining(&looked), [0, 8, 18]);
        }
        let masters = group.cluster.masters.iter();
        let keys: Vec<_> = masters.map(|master| master.keys()).collect();
        assert!(keys.iter().all(|keys| !keys.is_empty()), "{keys:?}");
        let keys: Vec<_> = keys.concat();
        // What counts in debt shares a key.
        let counts_in_debt = |limit: &&Limit| {
            let algorithm = Algorithm::try_from(*limit).unwrap();
            ["gcra", "token_bucket", "leaky_bucket"].contains(&algorithm.name())
        };
        let debts = limits.iter().filter(counts_in_debt).count();
        let shared = keys.iter().filter(|key| key.ends_with(":client")).count();
        assert_eq!(shared, SUBJECTS.len() * debts.min(1), "{keys:?}");
        let of_each = limits.len() - debts + debts.min(1);
        assert_eq!(keys.len(), SUBJECTS.len() * of_each, "{keys:?}");
    }
}

/// A group of policies about different subjects has a key for each subject.
#[tokio::test]
async fn a_group_gives_back_what_it_took_if_another_is_denied() {
    for [few, many, more] in LIMITS {
        let group = Group::new().await;
        for subjects in SUBJECTS.windows(2) {
            let [one, two] = [subjects[0], subjects[1]];
            let ask = |action| group.ask([one, one, two], [many, more, few], action);
            let before = remaining(&ask(Action::look()).await);
            let mut allowed = 0;
            while ask(Action::acquire(1)).await.all_allow() {
                allowed += 1;
            }
            assert_eq!(allowed, before[2].min(before[0]));
            let after = [
                before[0] - allowed,
                before[1] - allowed,
                before[2] - allowed,
            ];
            assert_eq!(remaining(&ask(Action::look()).await), after, "{one} {two}");
        }
    }
}
