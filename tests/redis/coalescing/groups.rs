//! Takes under the policies of a group, some of them in shadow, share trips whatever their
//! subjects.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{Decision, HOUR, Limit, StoreErrorKind};

use super::model::{
    PLAIN, Place, Question, States, answer, assert_in_order, check, in_runs, is_allowed,
};
use super::{SLOW, Stage};
use support::asking::check_of;

const POLICIES: usize = 4;
const SUBJECTS: [&str; 4] = ["alice", "bob", "carol", "dave"];

/// The state of a policy and a subject.
fn state(subject: usize, policy: usize) -> usize {
    subject * POLICIES + policy
}

/// Each about one subject, under some of the policies.
fn questions() -> impl Strategy<Value = Vec<Question>> {
    let policies = prop::sample::subsequence((0..POLICIES).collect::<Vec<_>>(), 1..=POLICIES);
    let shadows = prop_oneof![
        5 => prop::collection::vec(prop::bool::weighted(0.4), POLICIES),
        1 => Just(vec![true; POLICIES]),
    ];
    let question = (0..SUBJECTS.len(), policies, shadows, 1_u64..5);
    in_runs(question.prop_map(|(subject, policies, shadows, cost)| {
        let states = policies.into_iter().map(|policy| state(subject, policy));
        Question {
            states: states.zip(shadows).collect(),
            cost,
        }
    }))
}

/// For each subject and policy, with these limits.
fn states(case: usize, limits: &[Limit]) -> States {
    let places = SUBJECTS.into_iter().flat_map(|subject| {
        let each = limits.iter().enumerate();
        each.map(move |(policy, limit)| Place {
            policy: PolicyId::new(&format!("case-{case}-{policy}"))
                .in_group(&format!("case-{case}")),
            subject,
            limit: *limit,
        })
    });
    States::new(places.collect())
}

#[tokio::test]
async fn at_one_instant_answers_follow_the_order_of_arrival() {
    let stage = Stage::start().await;
    let asked = assert_in_order(&stage, &[PLAIN; POLICIES], states, questions()).await;
    asked.assert_some_denied_in_shadow_only();
}

/// If none in shadow fits and none is enforced, there is nothing to write.
#[tokio::test]
async fn on_a_server_out_of_memory_denials_in_shadow_stay_denials() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::gcra(1, HOUR).burst(1);
    let policies = ["a", "b"].map(|name| PolicyId::new(name).in_group("g"));
    let take = async |number: usize| {
        let subject = ["alice", "bob"][number % 2];
        let checks = policies
            .each_ref()
            .map(|policy| check(policy, subject, limit, 1, true));
        answer(&stage, &checks).await
    };
    let alice = take(0).await.unwrap();
    assert!(is_allowed(&alice));
    stage.server.set_full(true);
    for (number, answer) in join_all((0..40).map(take)).await.into_iter().enumerate() {
        match number % 2 {
            0 => {
                let decisions = answer.unwrap();
                let mut each = decisions.iter();
                assert!(each.all(|decision| !decision.is_allowed()), "{number}");
            }
            _ => assert_eq!(answer, Err(StoreErrorKind::Full), "{number}"),
        }
    }
}

/// Many at once find a policy in shadow that owes more than it would let anybody take.
#[tokio::test]
async fn what_is_owed_in_shadow_is_not_forgiven() {
    const TIMES: u64 = 40;
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let [few, many] = [1, TIMES].map(|burst| Limit::gcra(1, HOUR).burst(burst));
    let [a, b] = ["a", "b"].map(|name| PolicyId::new(name).in_group("g"));
    let charge = check_of(&b, "alice", &few, Action::Charge(9));
    answer(&stage, &[charge]).await.unwrap();
    let take = || async {
        let checks = [
            check(&a, "alice", many, 1, false),
            check(&b, "alice", few, 1, true),
        ];
        answer(&stage, &checks).await.unwrap()
    };
    for decisions in join_all((0..TIMES).map(|_| take())).await {
        assert!(decisions[0].is_allowed() && !decisions[1].is_allowed());
    }
    let look = [(&a, many), (&b, few)];
    let look = look.map(|(policy, limit)| check_of(policy, "alice", &limit, Action::look()));
    let owed = answer(&stage, &look).await.unwrap();
    assert_eq!(
        [0, 1].map(|policy: usize| owed[policy].reset_after()),
        [HOUR * TIMES as u32, HOUR * 9]
    );
}

/// More than there is room for on the stack of a script that reads a record at once.
#[tokio::test]
async fn groups_of_thousands_of_policies_are_judged_under_load() {
    const POLICIES: usize = 5_000;
    const CALLERS: u64 = 4;
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::gcra(1, HOUR).burst(10);
    let policies: Vec<_> = (0..POLICIES)
        .map(|number| PolicyId::new(&number.to_string()).in_group("g"))
        .collect();
    let take = async || {
        // Those in shadow are decided by themselves.
        let each = policies.iter().enumerate();
        let checks: Vec<_> = each
            .map(|(number, policy)| check(policy, "alice", limit, 1, number % 2 == 1))
            .collect();
        answer(&stage, &checks).await.unwrap()
    };
    let answers = join_all((0..CALLERS).map(|_| take())).await;
    // Each caller gets the same from all policies, and something else than all others.
    let left = answers.iter().map(|decisions| {
        let left: BTreeSet<_> = decisions.iter().map(Decision::remaining).collect();
        assert_eq!(left.len(), 1);
        left.first().copied()
    });
    let left: BTreeSet<_> = left.flatten().collect();
    assert_eq!(left, BTreeSet::from([6, 7, 8, 9]));
}

/// As while a policy moves into a group: each key counts by itself.
#[tokio::test]
async fn a_policy_in_and_out_of_a_group_uses_different_keys() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let alone = PolicyId::new("api");
    let policies = [
        alone.clone(),
        alone.clone().in_group("group"),
        alone.in_group("other"),
    ];
    for (subject, limit) in [
        ("fractions", Limit::gcra(7, HOUR).burst(10)),
        ("plain", Limit::gcra(1, HOUR).burst(10)),
    ] {
        let takes = (0..60).map(|number| {
            let (stage, policy) = (&stage, &policies[number % 3]);
            async move {
                let decisions = answer(stage, &[check(policy, subject, limit, 1, false)]).await;
                decisions.unwrap()[0].is_allowed()
            }
        });
        let allowed = join_all(takes).await;
        for policy in 0..3 {
            let own = allowed.iter().skip(policy).step_by(3);
            assert_eq!(
                own.filter(|allowed| **allowed).count(),
                10,
                "{subject} {policy}"
            );
        }
    }
}
