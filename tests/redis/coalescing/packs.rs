//! Takes of several rates at once share trips whatever their keys.

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::PolicyId;
use tower_throttle::{Clock as _, HOUR, Limit, MINUTE, Micros, SECOND, StoreErrorKind};

use super::model::{
    Answered, Place, Question, States, answer, answers_without_memory, is_allowed,
    replies_beside_a_corrupt_key, scripts_of_four_rounds,
};
use super::{SLOW, Stage, assert_of_both_kinds};
use support::drawn::drawn;

/// A limit of two rates.
#[derive(Clone, Copy, Debug)]
struct Rates([Limit; 2]);

const RATES: Rates = Rates([
    Limit::gcra(1, SECOND).burst(3),
    Limit::gcra(1, MINUTE).burst(5),
]);

/// Both rates' states, with nothing taken.
fn states(policy: &str, Rates(limits): Rates) -> States {
    let first = PolicyId::new(policy);
    let further = first.with_extra_rate(Micros::new(60_000_000));
    let each = [first, further].into_iter().zip(limits);
    let places = each.map(|(policy, limit)| Place {
        policy,
        subject: "alice",
        limit,
    });
    States::new(places.collect())
}

fn of_both(cost: u64) -> Question {
    Question {
        states: vec![(0, false), (1, false)],
        cost,
    }
}

async fn take(stage: &Stage, policy: &str, rates: Rates, cost: u64) -> Answered {
    let states = states(policy, rates);
    answer(stage, &states.checks(&of_both(cost))).await
}

/// The answers when they come together.
async fn take_all(stage: &Stage, takes: &[(String, Rates, u64)]) -> Vec<Answered> {
    let takes = takes.iter();
    let takes = takes.map(|(policy, rates, cost)| take(stage, policy, *rates, *cost));
    join_all(takes).await
}

/// One of each of this many keys.
async fn take_one_each(stage: &Stage, keys: usize) -> Vec<Answered> {
    let takes: Vec<_> = (0..keys)
        .map(|key| (format!("key-{key}"), RATES, 1))
        .collect();
    take_all(stage, &takes).await
}

#[tokio::test]
async fn at_one_instant_answers_for_each_key_follow_some_order() {
    let stage = Stage::start().await;
    let scripts = stage.scripts();
    let (mut asked, mut denied) = (0, 0);
    let bursts = prop::collection::vec((1_u64..30, 1_u64..30), 6);
    let takes = prop::collection::vec((0..6_usize, 1_u64..6), 1..100);
    for (case, (bursts, takes)) in drawn((bursts, takes)).take(60).enumerate() {
        let rates: Vec<_> = bursts
            .into_iter()
            .map(|(one, other)| {
                Rates([
                    Limit::gcra(1, SECOND).burst(one),
                    Limit::gcra(1, MINUTE).burst(other),
                ])
            })
            .collect();
        let questions: Vec<_> = takes
            .into_iter()
            .map(|(key, cost)| (format!("case-{case}-{key}"), rates[key], cost))
            .collect();
        let answers = take_all(&stage, &questions).await;
        for (key, rates) in rates.into_iter().enumerate() {
            let name = format!("case-{case}-{key}");
            let of_key = questions.iter().zip(&answers);
            let of_key = of_key.filter(|((policy, ..), _)| *policy == name);
            let (mut let_in, refused): (Vec<_>, Vec<_>) = of_key
                .map(|((.., cost), answer)| (*cost, answer.as_ref().unwrap()))
                .partition(|(_, decisions)| is_allowed(decisions));
            let_in.sort_by_key(|(_, decisions)| decisions[1].reset_after());
            let now = stage.clock.now();
            let mut passed = vec![states(&name, rates)];
            asked += let_in.len() + refused.len();
            denied += refused.len();
            for (cost, decisions) in let_in {
                let mut states = passed[passed.len() - 1].clone();
                let expected = states.ask(&of_both(cost), now);
                assert_eq!(&expected, decisions, "{rates:?}");
                passed.push(states);
            }
            for (cost, decisions) in refused {
                let mut passed = passed.iter().cloned();
                let is_somewhere =
                    passed.any(|mut states| states.ask(&of_both(cost), now) == *decisions);
                assert!(is_somewhere, "{rates:?} {cost}: {decisions:?}");
            }
        }
        stage.clock.advance(SECOND / 7);
    }
    assert_of_both_kinds(asked, denied);
    assert!(stage.scripts() - scripts < asked as u64 / 2);
}

#[tokio::test]
async fn five_hundred_keys_are_a_few_scripts() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = scripts_of_four_rounds(&stage, take_one_each).await;
    // In each round eight alone and up to six trips; twice in the first, as the server does not
    // know their scripts yet.
    assert!(scripts <= 70, "{scripts} scripts");
}

/// However many wait, those about one key who ask the same are one step.
#[tokio::test]
async fn a_hot_key_is_written_once_for_each_trip() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let hot = Rates([
        Limit::gcra(1, SECOND).burst(300),
        Limit::gcra(1, MINUTE).burst(200),
    ]);
    let takes = vec![("hot".to_owned(), hot, 1); 400];
    let (writes, scripts) = (stage.server.calls("set"), stage.scripts());
    let answers = take_all(&stage, &takes).await;
    let mut left: Vec<_> = answers
        .into_iter()
        .map(Result::unwrap)
        .filter(|decisions| is_allowed(decisions))
        .map(|decisions| decisions[1].remaining())
        .collect();
    left.sort_unstable();
    assert!(left.into_iter().eq(0..200));
    let (writes, scripts) = (
        stage.server.calls("set") - writes,
        stage.scripts() - scripts,
    );
    assert!(
        writes <= scripts && scripts < 40,
        "{writes} writes in {scripts} scripts"
    );
}

#[tokio::test]
async fn a_corrupt_value_fails_alone_and_is_not_changed() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let corrupt = stage.key(RATES.0[0], "key-20");
    for (command, value) in [("SET", "hello"), ("SET", "\u{80}"), ("RPUSH", "hello")] {
        stage.server.query::<()>(("DEL", &corrupt));
        stage.server.query::<()>((command, &corrupt, value));
        let answers = take_one_each(&stage, 40);
        replies_beside_a_corrupt_key(&stage, &corrupt, answers, value).await;
    }
    // A corrupt key need not expire.
    stage.server.query::<()>(("DEL", &corrupt));
}

#[tokio::test]
async fn a_key_that_has_one_state_alone_is_judged_as_the_others_are() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let lone = stage.take("key-20", RATES.0[0], 2).await;
    assert_eq!(lone.unwrap().remaining(), 1);
    for (position, answer) in take_one_each(&stage, 40).await.into_iter().enumerate() {
        let left = if position == 20 { [0, 4] } else { [2, 4] };
        let answer = answer.unwrap();
        assert_eq!([0, 1].map(|rate: usize| answer[rate].remaining()), left);
    }
}

/// Questions that need no write are answered.
#[tokio::test]
async fn on_a_server_out_of_memory_denials_stay_denials() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let meanwhile = async || {
        let taken = stage.take("other", Limit::gcra(1, HOUR), 1).await;
        assert_eq!(taken, Err(StoreErrorKind::Full));
    };
    let [denied, later] = answers_without_memory(&stage, take_one_each, meanwhile).await;
    assert!(denied.iter().all(|answer| !is_allowed(answer)));
    assert!(later.iter().all(|answer| is_allowed(answer)));
}
