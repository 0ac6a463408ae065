//! Random histories about several subjects, in a cluster where each is on its own node, and in
//! memory.

use std::time::Duration;

use proptest::prelude::*;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Check, Decisions, PolicyId, Store};
use tower_throttle::{Limit, MINUTE, ManualClock, MemoryStore, Micros, Penalty, SECOND};

use support::asking::{answer_of, check_of};
use support::cluster::Cluster;
use support::drawn::drawn;
use support::limits::in_time;

const POLICIES: usize = 3;

/// One policy's part of a question.
#[derive(Clone, Debug)]
struct Asked {
    policy: usize,
    subject: usize,
    is_shadow: bool,
}

/// A question, some time after the previous one.
#[derive(Clone, Debug)]
struct Step {
    after: Duration,
    asked: Vec<Asked>,
    cost: u64,
    is_final: bool,
}

/// What a policy asks: its rates, with the period of the further one, and a penalty behind them.
#[derive(Clone, Debug)]
struct Asking {
    rates: Vec<(Option<Micros>, Limit)>,
    penalty: Option<Penalty>,
}

fn askings() -> impl Strategy<Value = Asking> {
    let window = prop::sample::select(vec![SECOND, SECOND * 10]);
    let further = prop::option::weighted(0.3, 1_u64..24);
    let penalty = prop::option::weighted(0.3, (1_u32..4, 1..10_u32));
    let asking = (1_u64..12, window, 0..8_usize, further, penalty);
    asking.prop_map(|(permits, window, algorithm, further, penalty)| {
        let rate = |permits, window| in_time(permits, window)[algorithm].1;
        let further = further.map(|permits| (Some(Micros::from(MINUTE)), rate(permits, MINUTE)));
        let first = (None, rate(permits, window));
        Asking {
            rates: [first].into_iter().chain(further).collect(),
            penalty: penalty.map(|(denials, secs)| {
                Penalty::after(denials, SECOND, SECOND * secs / 5).doubling_up_to(MINUTE)
            }),
        }
    })
}

/// For each of its checks: its id, its algorithm, and what it takes at this cost.
fn decides(policy: &PolicyId, asking: &Asking, cost: u64) -> Vec<(PolicyId, Algorithm, u64)> {
    let rates = asking.rates.iter().map(|(further, limit)| {
        let id = further.map_or(policy.clone(), |period| policy.with_extra_rate(period));
        (id, Algorithm::try_from(limit).unwrap(), cost)
    });
    let penalty = asking.penalty.iter().map(|penalty| {
        let algorithm = Algorithm::try_from(penalty).unwrap();
        (policy.clone(), algorithm, 1)
    });
    rates.chain(penalty).collect()
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
        1_u64..4,
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
    answer_of(store, checks).await.unwrap()
}

/// A caller that one policy denies has taken nothing of the others, whatever their limits, and is
/// told as much about all that deny it.
#[tokio::test]
async fn a_cluster_decides_as_a_single_store_and_leaves_as_much() {
    let cluster = Cluster::start();
    let clock = ManualClock::new();
    let redis = cluster.patient().clock_for_tests(clock.clone());
    let redis = redis.connect().await.unwrap().without_deny_cache();
    let (mut let_in, mut asked) = (0, 0);
    let askings = prop::collection::vec(askings(), POLICIES);
    let in_group = prop::collection::vec(prop::bool::weighted(0.4), POLICIES);
    let history = (askings, in_group, prop::collection::vec(steps(), 1..25));
    for (case, (askings, in_group, steps)) in drawn(history).take(100).enumerate() {
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
                Action::consume
            } else {
                Action::acquire
            };
            let decides = step.asked.iter().flat_map(|asked| {
                let policy = &policies[asked.policy];
                let decides = decides(policy, &askings[asked.policy], step.cost);
                decides.into_iter().map(move |decide| (asked, decide))
            });
            let decides: Vec<_> = decides.collect();
            let checks: Vec<_> = decides
                .iter()
                .map(|(asked, (policy, algorithm, cost))| {
                    check_of(
                        policy,
                        format!("{case}-{}", asked.subject),
                        *algorithm,
                        action(*cost),
                    )
                    .in_shadow(asked.is_shadow)
                })
                .collect();
            let told = |decisions: Decisions| {
                let each = || checks.iter().zip(decisions.iter());
                let mut enforced = each().filter(|(check, _)| !check.is_shadow);
                let is_let_in = enforced.all(|(_, decision)| decision.is_allowed());
                let said = each().map(|(_, decision)| {
                    (
                        decision.outcome(),
                        decision.remaining(),
                        decision.retry_after(),
                        decision.banned_for(),
                    )
                });
                (is_let_in, said.collect::<Vec<_>>())
            };
            let expected = told(ask(&memory, &checks).await);
            let found = told(ask(&redis, &checks).await);
            asked += 1;
            let_in += usize::from(found.0);
            assert_eq!(found, expected, "{askings:?} {step:?}");
        }
    }
    assert!(
        let_in * 10 > asked && let_in * 10 < asked * 9,
        "{let_in} of {asked}"
    );
}
