//! Takes by the policies of a group, some of them in shadow, share trips whatever their subjects.

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tower_throttle::algorithm::{Action, Algorithm, Ask, State, committed, decide};
use tower_throttle::{
    Check, Clock as _, Decision, HOUR, Limit, Micros, PolicyId, SECOND, StoreErrorKind,
};

use super::several::{answer, check, is_allowed};
use super::{SLOW, Stage, assert_of_both_kinds};

const POLICIES: usize = 4;
const SUBJECTS: usize = 4;

/// Of one subject: which policies are asked, and whether in shadow.
#[derive(Clone, Debug)]
struct Question {
    subject: usize,
    policies: Vec<(usize, bool)>,
    cost: u32,
}

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let policies = prop::sample::subsequence((0..POLICIES).collect::<Vec<_>>(), 1..=POLICIES);
    let shadows = prop_oneof![
        5 => prop::collection::vec(prop::bool::weighted(0.4), POLICIES),
        1 => Just(vec![true; POLICIES]),
    ];
    let question = (0..SUBJECTS, policies, shadows, 1_u32..5).prop_map(
        |(subject, policies, shadows, cost)| Question {
            subject,
            policies: policies.into_iter().zip(shadows).collect(),
            cost,
        },
    );
    // Whole runs of the same question.
    let runs = (question, prop_oneof![2 => Just(1_usize), 1 => 2..9_usize]);
    prop::collection::vec(runs, 1..60).prop_map(|runs| {
        let each = runs.into_iter();
        each.flat_map(|(question, times)| vec![question; times])
            .collect()
    })
}

/// A group in Rust: of each subject the states of its policies.
struct Group {
    policies: [PolicyId; POLICIES],
    algorithms: Vec<Algorithm>,
    states: Vec<Vec<State>>,
}

impl Group {
    fn new(case: usize, limits: &[Limit]) -> Self {
        let name = |policy: usize| format!("case-{case}-{policy}");
        let policy = |policy| PolicyId::new(&name(policy)).in_group(&format!("case-{case}"));
        let algorithms: Vec<_> = limits
            .iter()
            .map(|limit| Algorithm::try_from(limit).unwrap())
            .collect();
        let untouched: Vec<_> = algorithms.iter().map(Algorithm::untouched).collect();
        Self {
            policies: std::array::from_fn(policy),
            states: vec![untouched; SUBJECTS],
            algorithms,
        }
    }

    fn checks(&self, limits: &[Limit], question: &Question) -> Vec<Check<'_>> {
        let subject = question.subject.to_string();
        let checks = question.policies.iter().map(|&(policy, is_shadow)| {
            let (id, limit) = (&self.policies[policy], limits[policy]);
            check(id, &subject, limit, question.cost, is_shadow)
        });
        checks.collect()
    }

    fn ask(&mut self, question: &Question, now: Micros) -> Vec<Decision> {
        let action = Action::spend(question.cost);
        let (each, states) = (&question.policies, &mut self.states[question.subject]);
        let asks = each.iter().map(|&(policy, is_shadow)| Ask {
            is_shadow,
            ..Ask::enforced(&self.algorithms[policy], &action)
        });
        let readings: Vec<_> = each
            .iter()
            .map(|&(policy, _)| self.algorithms[policy].read(&states[policy], now, &action))
            .collect();
        let is_committed = committed(asks.clone(), &readings);
        for ((&(policy, _), reading), is_committed) in each.iter().zip(&readings).zip(is_committed)
        {
            if is_committed {
                let state = &mut states[policy];
                self.algorithms[policy].commit(state, now, &action, *reading);
            }
        }
        decide(asks, &readings).to_vec()
    }
}

#[tokio::test]
async fn at_one_instant_the_answers_are_those_of_the_order_in_which_they_came() {
    let stage = Stage::start().await;
    let mut runner = TestRunner::default();
    let (mut asked, mut denied, mut only_in_shadow) = (0, 0, 0);
    let scripts = stage.scripts();
    for case in 0..60 {
        let bursts = prop::collection::vec(4_u32..50, POLICIES);
        let rounds = prop::collection::vec(questions(), 2);
        let (bursts, rounds) = (bursts, rounds).new_tree(&mut runner).unwrap().current();
        let limits = bursts
            .into_iter()
            .map(|burst| Limit::gcra(1, SECOND).burst(burst));
        let limits: Vec<_> = limits.collect();
        let mut group = Group::new(case, &limits);
        for questions in rounds {
            // Tokio lets a task that has done much go on later, and what it has begun in another order.
            tokio::task::yield_now().await;
            let answers = questions.iter().map(|question| {
                let (stage, checks) = (&stage, group.checks(&limits, question));
                async move { answer(stage, &checks).await.unwrap() }
            });
            let answers = join_all(answers).await;
            for (question, answer) in questions.iter().zip(&answers) {
                let expected = group.ask(question, stage.clock.now());
                assert_eq!(*answer, expected, "{question:?}");
                let each = || question.policies.iter().zip(answer);
                let mut of_enforced = each().filter(|((_, is_shadow), _)| !is_shadow);
                let is_let_in = of_enforced.all(|(_, decision)| decision.is_allowed());
                asked += 1;
                denied += usize::from(!is_let_in);
                only_in_shadow += usize::from(is_let_in && !is_allowed(answer));
            }
            stage.clock.advance(SECOND * 7 / 2);
        }
    }
    assert_of_both_kinds(asked, denied);
    assert!(only_in_shadow * 50 > asked, "{only_in_shadow} of {asked}");
    let scripts = stage.scripts() - scripts;
    assert!(scripts < asked as u64 / 4, "{scripts} of {asked}");
}

/// Where none of those in shadow fits, and none is enforced, there is nothing to write.
#[tokio::test]
async fn on_a_server_out_of_memory_those_who_are_denied_in_shadow_still_are() {
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
