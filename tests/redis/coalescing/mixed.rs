//! Takes of limits of several rates, or of a group, share trips with takes of other keys beside
//! them.

use futures_util::future::join_all;
use redis::Value;
use tower_throttle::store::PolicyId;
use tower_throttle::{Clock as _, Decision, Limit, MINUTE, Micros, SECOND};

use super::model::{
    Answered, answer, answers_without_memory, check, is_allowed, scripts_of_four_rounds,
};
use super::several::{PLENTY, assert_expires_with, assert_fails_alone, key, used_by};
use super::{SLOW, Stage};

/// For each client.
const RATES: [Limit; 2] = [
    Limit::gcra(1, SECOND).burst(3),
    Limit::gcra(1, MINUTE).burst(5),
];
/// The answers to this many clients, when they come together.
async fn take_one_each(stage: &Stage, clients: usize) -> Vec<Answered> {
    let takes = (0..clients).map(|client| async move {
        let limit = PolicyId::new(&format!("client-{client}"));
        let minutely = limit.with_extra_rate(Micros::from(MINUTE));
        let all = PolicyId::new("all");
        let checks = [
            check(&limit, "alice", RATES[0], 1, false),
            check(&minutely, "alice", RATES[1], 1, false),
            check(&all, "all", PLENTY, 1, false),
        ];
        answer(stage, &checks).await
    });
    join_all(takes).await
}

fn used_of_all(stage: &Stage) -> u64 {
    used_by(stage, "all")
}

fn left(decisions: &[Decision]) -> [u64; 2] {
    [decisions[0].remaining(), decisions[1].remaining()]
}

#[tokio::test]
async fn five_hundred_clients_are_a_few_scripts_and_every_key_expires() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = scripts_of_four_rounds(&stage, take_one_each).await;
    assert_eq!(used_of_all(&stage), 1_500);
    // At most 512 takes each.
    assert!(scripts <= 50, "{scripts} scripts");
    for client in 0..500 {
        let key = key(&format!("client-{client}"), "alice").replace("gcra2", "gcra2+60s");
        let paid_us: u64 = stage.server.query(("GET", &key));
        assert_eq!(paid_us, stage.clock.now().get() + 180_000_000);
        assert_expires_with(&stage, &key, paid_us);
    }
}

#[tokio::test]
async fn denied_requests_that_share_a_trip_write_nothing() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    for _ in 0..3 {
        let answers = take_one_each(&stage, 40).await.into_iter();
        assert!(
            answers
                .map(Result::unwrap)
                .all(|answer| is_allowed(&answer))
        );
    }
    let writes = || stage.server.calls("set") + stage.server.calls("incrby");
    let before = writes();
    for answer in take_one_each(&stage, 40).await {
        assert!(!is_allowed(&answer.unwrap()));
    }
    assert_eq!(writes(), before);
}

#[tokio::test]
async fn a_key_of_another_type_fails_its_questions_alone() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let corrupt = key("client-20", "alice");
    let key = &corrupt;
    for (command, value) in [
        ("SET", "hello"),
        ("SET", ""),
        ("SET", "-7"),
        ("RPUSH", "hello"),
    ] {
        stage.server.query::<Value>(("DEL", key));
        stage.server.query::<Value>((command, key, value));
        let taken = || [used_of_all(&stage)];
        assert_fails_alone(&stage, key, taken, take_one_each, value).await;
    }
    // A corrupt key need not expire.
    stage.server.query::<Value>(("DEL", key));
}

#[tokio::test]
async fn states_in_another_form_are_decided_alike() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let paid_us = stage.clock.now().get() + 2_000_000;
    // Alone, and with a fraction of a microsecond that another rate has left.
    let alone = paid_us.to_string();
    let _: () = stage
        .server
        .query(("SET", &key("client-10", "alice"), &alone, "EX", "60"));
    let fraction = format!("{}:2147483648", paid_us - 1);
    let _: () = stage
        .server
        .query(("SET", &key("client-20", "alice"), &fraction, "EX", "60"));
    for (position, answer) in take_one_each(&stage, 40).await.into_iter().enumerate() {
        let expected = match position {
            10 | 20 => [0, 4],
            _ => [2, 4],
        };
        assert_eq!(left(&answer.unwrap()), expected, "{position}");
    }
    assert_eq!(used_of_all(&stage), 40);
}

/// Questions that need no write are answered, as if nobody had asked who needs one.
#[tokio::test]
async fn on_a_full_server_denials_hold_and_nothing_is_acquired() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let meanwhile = async || assert_eq!(used_of_all(&stage), 60);
    let [denied, later] = answers_without_memory(&stage, take_one_each, meanwhile).await;
    assert!(denied.iter().all(|answer| left(answer) == [0, 2]));
    assert!(later.iter().all(|answer| left(answer) == [2, 4]));
}

/// Different policies of the group are asked here and there: they are in one key.
#[tokio::test]
async fn policies_of_a_group_share_a_key_across_questions() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::gcra(1, SECOND).burst(30);
    let takes = (0..60).map(|number: usize| {
        let stage = &stage;
        async move {
            let policies = [["a", "b"], ["b", "c"], ["a", "c"]][number % 3];
            let policies = policies.map(|name| PolicyId::new(name).in_group("g"));
            let all = PolicyId::new("all");
            let checks = [
                check(&policies[0], "alice", limit, 1, false),
                check(&all, "all", PLENTY, 1, false),
                check(&policies[1], "alice", limit, 1, false),
            ];
            answer(stage, &checks).await.unwrap()
        }
    });
    let answers = join_all(takes).await;
    // Each policy is asked by two of three.
    let allowed = answers.iter().filter(|answer| is_allowed(answer)).count();
    assert_eq!(allowed, 45);
    assert_eq!(used_of_all(&stage), 45);
    let scripts = stage.scripts();
    let key = stage
        .server
        .keys()
        .into_iter()
        .find(|key| key.ends_with(":g"));
    let key = key.unwrap();
    let record: Vec<u8> = stage.server.query(("GET", &key));
    let debts = record.chunks(16).map(|entry| entry[4..].to_vec());
    let paid = u128::from(stage.clock.now().get() + 30_000_000).to_be_bytes();
    assert_eq!(debts.collect::<Vec<_>>(), [&paid[4..]; 3]);
    assert!(scripts <= 20, "{scripts} scripts");
}
