//! Policies in no group, in a cluster, about the same subject and about several.

use futures_util::future::join_all;
use tower_throttle::store::Action;
use tower_throttle::store::{Decisions, PolicyId};
use tower_throttle::{DAY, Limit, MINUTE, RedisStore};

use crate::connect::cluster::SUBJECTS;
use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;

const FEW: Limit = Limit::gcra(30, DAY);
const MANY: Limit = Limit::gcra(1_000, DAY);

async fn take(store: &RedisStore, subjects: [&str; 2]) -> Decisions {
    let policies = ["many", "few"].map(PolicyId::new);
    let each = policies.iter().zip(subjects).zip([MANY, FEW]);
    let checks: Vec<_> = each
        .map(|((policy, subject), limit)| check_of(policy, subject, &limit, Action::consume(1)))
        .collect();
    pending_answer_of(store, &checks).await.unwrap()
}

/// How many of this many are let in that come together.
async fn let_in(store: &RedisStore, count: usize, subjects: [&str; 2]) -> usize {
    let answers = join_all((0..count).map(|_| take(store, subjects))).await;
    answers.iter().filter(|answer| answer.all_allow()).count()
}

/// A cluster, and a store that waits for all of its trips, however slow the machine is.
async fn patient() -> (Cluster, RedisStore) {
    let cluster = Cluster::start();
    let store = cluster.patient().wait_for_batches(MINUTE).connect().await;
    (cluster, store.unwrap().without_deny_cache())
}

fn scripts(cluster: &Cluster) -> u64 {
    let nodes = cluster.masters.iter();
    nodes.map(|node| node.calls("evalsha")).sum()
}

#[tokio::test]
async fn takes_of_one_subject_share_scripts_to_the_last_permit() {
    let (cluster, store) = patient().await;
    for subject in SUBJECTS {
        let before = scripts(&cluster);
        assert_eq!(let_in(&store, 100, [subject; 2]).await, 30, "{subject}");
        let scripts = scripts(&cluster) - before;
        assert!(scripts <= 10, "{subject}: {scripts} scripts");
        // Those who were denied by one have taken nothing of the other.
        let left = take(&store, [subject; 2]).await;
        assert_eq!(left[0].remaining(), 1_000 - 30, "{subject}");
    }
}

#[tokio::test]
async fn permits_of_one_subject_are_given_back_if_another_is_denied() {
    let (cluster, store) = patient().await;
    for subjects in SUBJECTS.windows(2) {
        let subjects = [subjects[0], subjects[1]];
        let before = scripts(&cluster);
        assert_eq!(let_in(&store, 40, subjects).await, 30, "{subjects:?}");
        // Those who come together share scripts about each subject; those who are denied give back
        // and look.
        let scripts = scripts(&cluster) - before;
        assert!(scripts <= 40, "{subjects:?}: {scripts} scripts");
        let left = take(&store, subjects).await;
        assert_eq!(left[0].remaining(), 1_000 - 30, "{subjects:?}");
    }
}
