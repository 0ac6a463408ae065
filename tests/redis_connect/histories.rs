//! Random histories about several subjects over a cluster, where each has a node of its own, and in memory.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tower_throttle::algorithm::{Action, Algorithm};
use tower_throttle::{
    Answer, Check, Decisions, FailureMode, Key, Limit, ManualClock, MemoryStore, PolicyId,
    RedisStore, SECOND, Store, Subject,
};

use crate::support::cluster::Cluster;
use crate::support::limits::in_time;

const POLICIES: usize = 3;

/// One policy's part of a question.
#[derive(Clone, Debug)]
struct Asked {
    policy: usize,
    subject: usize,
    is_shadow: bool,
}

/// A question, some time after the one before it.
#[derive(Clone, Debug)]
struct Step {
    after: Duration,
    asked: Vec<Asked>,
    cost: u32,
    is_final: bool,
}

fn limits() -> impl Strategy<Value = Limit> {
    let window = prop::sample::select(vec![SECOND, SECOND * 10]);
    (1_u32..12, window, 0..8_usize)
        .prop_map(|(permits, window, algorithm)| in_time(permits, window)[algorithm].1)
}

fn steps() -> impl Strategy<Value = Step> {
    let asked = (0..3_usize, prop::bool::weighted(0.2));
    let asked = prop::collection::vec(asked, POLICIES);
    let policies = prop::sample::subsequence((0..POLICIES).collect::<Vec<_>>(), 1..=POLICIES);
    let after = prop_oneof![Just(0), 1..400_u64].prop_map(Duration::from_millis);
    let steps = (
        after,
        asked,
        policies.prop_shuffle(),
        1_u32..4,
        prop::bool::ANY,
    );
    steps.prop_map(|(after, asked, policies, cost, is_final)| Step {
        after,
        asked: policies
            .into_iter()
            .zip(asked)
            .map(|(policy, (subject, is_shadow))| Asked {
                policy,
                subject,
                is_shadow,
            })
            .collect(),
        cost,
        is_final,
    })
}

async fn ask(store: &dyn Store, checks: &[Check<'_>]) -> Decisions {
    match store.ask(checks) {
        Answer::Ready(answer) => answer.unwrap(),
        Answer::Pending(answer) => answer.await.unwrap(),
    }
}

/// Whoever is denied by one has taken nothing of the others, whichever limits these are.
#[tokio::test]
async fn a_cluster_lets_in_whom_one_place_for_all_would_and_leaves_as_much() {
    let cluster = Cluster::start();
    let clock = ManualClock::new();
    let redis = RedisStore::builder(&cluster.url()).clock_for_tests(clock.clone());
    let redis = redis.connect().await.unwrap().without_deny_cache();
    let mut runner = TestRunner::default();
    let (mut let_in, mut asked) = (0, 0);
    for case in 0..100 {
        let limits = prop::collection::vec(limits(), POLICIES);
        let in_group = prop::collection::vec(prop::bool::weighted(0.4), POLICIES);
        let history = (limits, in_group, prop::collection::vec(steps(), 1..25));
        let (limits, in_group, steps) = history.new_tree(&mut runner).unwrap().current();
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        let policies = in_group.iter().enumerate().map(|(name, in_group)| {
            let policy = PolicyId::new(&name.to_string());
            if *in_group {
                policy.in_group("g")
            } else {
                policy
            }
        });
        let policies: Vec<_> = policies.collect();
        for step in &steps {
            clock.advance(step.after);
            let action = if step.is_final {
                Action::spend
            } else {
                Action::take
            };
            let checks: Vec<_> = step
                .asked
                .iter()
                .map(|asked| Check {
                    policy: &policies[asked.policy],
                    subject: Subject::from(&Key::from(format!("{case}-{}", asked.subject))),
                    algorithm: Algorithm::try_from(&limits[asked.policy]).unwrap(),
                    action: action(step.cost),
                    is_shadow: asked.is_shadow,
                    on_store_failure: FailureMode::Deny,
                })
                .collect();
            let told = |decisions: Decisions| {
                let each = || step.asked.iter().zip(decisions.iter());
                let mut enforced = each().filter(|(asked, _)| !asked.is_shadow);
                let is_let_in = enforced.all(|(_, decision)| decision.is_allowed());
                let left: Vec<_> = each().map(|(_, decision)| decision.remaining()).collect();
                (is_let_in, left)
            };
            let expected = told(ask(&memory, &checks).await);
            let answer = ask(&redis, &checks).await;
            // A part in shadow is waited for so long only, and on a busy machine may be late.
            let is_late = answer.iter().any(|one| one.store_failure().is_some());
            let found = told(answer);
            asked += 1;
            let_in += usize::from(found.0);
            if is_late {
                assert_eq!(found.0, expected.0, "{limits:?} {step:?}");
                break;
            }
            assert_eq!(found, expected, "{limits:?} {step:?}");
        }
    }
    assert!(
        let_in * 10 > asked && let_in * 10 < asked * 9,
        "{let_in} of {asked}"
    );
}
