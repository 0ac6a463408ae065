//! Questions of every kind about the same keys at the same time: each kind has its own script.

use std::sync::Arc;

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::Action;
use tower_throttle::store::Check;
use tower_throttle::{Decision, HOUR, Limit, RedisStore, SECOND, per_second};

use super::model::{Question, States, answer};
use super::ten_states::{RATES, STATES, question, questions, ten_states};
use super::{Stage, assert_of_both_kinds};
use support::cluster::Cluster;
use support::drawn::drawn;

/// Limits that admit this many at one instant; most are decided as plain takes.
fn limits() -> impl Strategy<Value = Vec<(u64, Limit)>> {
    let kind = prop_oneof![3 => Just(0), 1 => 1..9];
    let limits = prop::collection::vec((kind, 10_u64..150), STATES);
    limits.prop_map(|mut limits| {
        // The rates of one limit.
        limits[RATES[1]].0 = limits[RATES[0]].0;
        let each = limits.into_iter();
        let each = each.map(|(kind, most)| {
            let limit = match kind {
                0 => Limit::gcra(1, SECOND).burst(most),
                1 => Limit::token_bucket(most, per_second(2)),
                // 2/7 of a second.
                2 => Limit::gcra(7, 2 * SECOND).burst(most),
                // In a queue, a place that others stand behind is not given back.
                3 => Limit::leaky_bucket(most, per_second(2)).without_delay(),
                4 => Limit::fixed_window(most, HOUR),
                5 => Limit::fixed_window(most, HOUR).aligned(),
                6 => Limit::sliding_window(most, HOUR),
                7 => Limit::sliding_log(most, HOUR),
                _ => Limit::sliding_counter(most, HOUR),
            };
            (most, limit)
        });
        each.collect()
    })
}

/// What is asked, and whether it is taken for good.
type Asked = (Question, bool);

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let alone = (0..STATES, prop::bool::weighted(0.2), 1_u64..4);
    let alone = alone.prop_map(|(state, is_shadow, cost)| question(vec![(state, is_shadow)], cost));
    let alone = prop::collection::vec(alone, 40);
    (
        questions(),
        alone,
        prop::collection::vec(prop::bool::weighted(0.7), 200),
        prop::collection::vec(prop::bool::weighted(0.7), 200),
    )
        .prop_map(|(several, alone, is_final, knows_all_rates)| {
            let mut asked: Vec<_> = several.into_iter().chain(alone).zip(is_final).collect();
            for ((question, _), knows_all_rates) in asked.iter_mut().zip(knows_all_rates) {
                // As by a process that does not have another of the limit's rates yet, or no
                // longer.
                if !knows_all_rates {
                    question.states.retain(|(state, _)| *state != RATES[1]);
                }
            }
            // Questions of a kind are not adjacent.
            asked.sort_by_key(|(question, _)| question.cost);
            asked
        })
}

async fn ask(stage: &Stage, states: &States, (question, is_final): &Asked) -> Vec<Decision> {
    let mut checks: Vec<Check<'_>> = states.checks(question);
    if !is_final {
        let take = Action::acquire(question.cost);
        checks.iter_mut().for_each(|check| check.action = take);
    }
    answer(stage, &checks).await.unwrap()
}

/// How many permits were taken of each state, according to the answers. For a limit all rates are
/// taken, or none.
fn acquired(answered: &[(Question, Vec<Decision>)]) -> [u64; STATES] {
    let mut taken = [0; STATES];
    for (question, answer) in answered {
        let each = || question.states.iter().zip(answer);
        let mut enforced = each().filter(|((_, is_shadow), _)| !is_shadow);
        if enforced.all(|(_, decision)| decision.is_allowed()) {
            let fitting = each().filter(|(_, decision)| decision.is_allowed());
            fitting.for_each(|((state, _), _)| taken[*state] += question.cost);
        }
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remaining_permits_agree_across_scripts() {
    assert_nothing_lost(Stage::start().await).await;
}

/// What a later node denies is given back on an earlier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_permits_left_are_those_that_no_script_took() {
    let cluster = Cluster::start();
    let stage = Stage::start().await;
    let store = cluster.patient().clock_for_tests(stage.clock.clone());
    let store = store.connect().await.unwrap().without_deny_cache();
    assert_nothing_lost(Stage { store, ..stage }).await;
}

/// Values have other types in RESP3, and errors are among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_resp3_permits_left_are_those_that_no_script_took() {
    let stage = Stage::start().await;
    let url = format!("{}?protocol=3", stage.server.url());
    let store = RedisStore::builder(&url).clock_for_tests(stage.clock.clone());
    let store = store.connect().await.unwrap().without_deny_cache();
    assert_nothing_lost(Stage { store, ..stage }).await;
}

async fn assert_nothing_lost(stage: Stage) {
    let stage = Arc::new(stage);
    let (mut count, mut denied) = (0, 0);
    for (case, (limits, asked)) in drawn((limits(), asked())).take(40).enumerate() {
        let (most, limits): (Vec<_>, Vec<_>) = limits.into_iter().unzip();
        let states = Arc::new(ten_states(case, &limits));
        let tasks = asked.chunks(asked.len().div_ceil(8)).map(|asked| {
            let (stage, states, asked) = (Arc::clone(&stage), Arc::clone(&states), asked.to_vec());
            tokio::spawn(async move {
                let answers = join_all(asked.iter().map(|asked| ask(&stage, &states, asked))).await;
                let questions = asked.into_iter().map(|(question, _)| question);
                questions.zip(answers).collect::<Vec<_>>()
            })
        });
        let answered = join_all(tasks.collect::<Vec<_>>()).await;
        let answered: Vec<_> = answered.into_iter().flat_map(Result::unwrap).collect();
        count += answered.len();
        let is_denied = |answer: &[Decision]| answer.iter().any(|decision| !decision.is_allowed());
        denied += answered
            .iter()
            .filter(|(_, answer)| is_denied(answer))
            .count();
        for (state, taken) in acquired(&answered).into_iter().enumerate() {
            let look = Question {
                states: vec![(state, false)],
                cost: 0,
            };
            let left = ask(&stage, &states, &(look, false)).await;
            let expected = most[state].checked_sub(taken);
            assert_eq!(Some(left[0].remaining()), expected, "{:?}", limits[state]);
        }
    }
    assert_of_both_kinds(count, denied);
}
