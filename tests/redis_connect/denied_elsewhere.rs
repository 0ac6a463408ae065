//! What a question over a cluster leaves with one subject, and says of it, when another subject is denied.

use tower_throttle::algorithm::{Action, Algorithm};
use tower_throttle::{
    Answer, Check, DAY, Decisions, FailureMode, HOUR, Key, Limit, Micros, Penalty, PolicyId,
    RedisStore, Store, Subject,
};

use crate::support::cluster::Cluster;

const ONE: &str = "a";
const OTHER: &str = "b";

/// A check of this policy, enforced, that takes so much.
fn check<'a>(
    policy: &'a PolicyId,
    judge: impl TryInto<Algorithm>,
    subject: &str,
    cost: u32,
) -> Check<'a> {
    Check {
        policy,
        subject: Subject::from(&Key::from(subject)),
        algorithm: judge.try_into().ok().unwrap(),
        action: Action::take(cost),
        is_shadow: false,
        on_store_failure: FailureMode::Deny,
    }
}

fn in_shadow(check: Check<'_>) -> Check<'_> {
    Check {
        is_shadow: true,
        ..check
    }
}

fn looking(check: Check<'_>) -> Check<'_> {
    Check {
        action: Action::look(),
        ..check
    }
}

async fn store(cluster: &Cluster) -> RedisStore {
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    store.without_deny_cache()
}

async fn ask(store: &RedisStore, checks: &[Check<'_>]) -> Decisions {
    match store.ask(checks) {
        Answer::Pending(answer) => answer.await.unwrap(),
        Answer::Ready(answer) => panic!("Redis takes a trip: {answer:?}"),
    }
}

async fn left(store: &RedisStore, check: Check<'_>) -> u32 {
    ask(store, &[looking(check)]).await[0].remaining()
}

#[tokio::test]
async fn a_rate_in_shadow_that_fits_beside_one_that_does_not_gets_nothing_back() {
    let cluster = Cluster::start();
    let store = store(&cluster).await;
    let [open, counted, full] = ["open", "counted", "full"].map(PolicyId::new);
    let hourly = counted.with_further_rate(Micros::from(HOUR));
    let day = in_shadow(check(&counted, &Limit::fixed_window(10, DAY), ONE, 1));
    let hour = in_shadow(check(&hourly, &Limit::fixed_window(1, HOUR), ONE, 1));
    let checks = [
        check(&open, &Limit::gcra(100, DAY), ONE, 1),
        day,
        hour,
        check(&full, &Limit::gcra(1, DAY), OTHER, 1),
    ];
    assert!(ask(&store, &checks).await.all_allow());
    for _ in 0..3 {
        assert!(!ask(&store, &checks).await[3].is_allowed());
        assert_eq!(left(&store, day).await, 9);
        assert_eq!(left(&store, checks[0]).await, 99);
    }
}

#[tokio::test]
async fn what_fits_in_shadow_of_a_subject_that_is_banned_gets_nothing_back() {
    let cluster = Cluster::start();
    let store = store(&cluster).await;
    let [open, counted, full] = ["open", "counted", "full"].map(PolicyId::new);
    let day = in_shadow(check(&counted, &Limit::fixed_window(10, DAY), ONE, 1));
    let ban = in_shadow(check(&counted, &Penalty::after(1, HOUR, HOUR), ONE, 1));
    let too_much = Check {
        action: Action::take(11),
        ..day
    };
    let checks = [
        check(&open, &Limit::gcra(100, DAY), ONE, 1),
        day,
        ban,
        check(&full, &Limit::gcra(1, DAY), OTHER, 1),
    ];
    assert!(ask(&store, &checks).await.all_allow());
    ask(&store, &[too_much, ban]).await;
    for _ in 0..3 {
        assert!(!ask(&store, &checks).await[3].is_allowed());
        assert_eq!(left(&store, day).await, 9);
    }
}
