//! Takes of many keys that come together share a script, too, and each is answered as if it came
//! alone.

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::{Clock as _, DAY, Decision, HOUR, Limit, SECOND, StoreErrorKind};

use super::answers::{buckets, follow};
use super::model::replies_beside_a_corrupt_key;
use super::several::assert_expires_with;
use super::{SLOW, Stage, allowed, assert_of_both_kinds};
use support::drawn::drawn;

const LIMIT: Limit = Limit::gcra(1, HOUR).burst(3);

pub(super) fn policies(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key-{number}")).collect()
}

/// The answers to one take each, when they come together.
pub(super) async fn take_each(
    stage: &Stage,
    limit: Limit,
    policies: &[String],
) -> Vec<Result<Decision, StoreErrorKind>> {
    let takes = policies.iter().map(|policy| stage.take(policy, limit, 1));
    join_all(takes).await
}

#[tokio::test]
async fn at_one_instant_answers_for_each_key_follow_some_order() {
    let stage = Stage::start().await;
    let scripts = stage.scripts();
    let (mut asked, mut denied) = (0, 0);
    let keys = prop::collection::vec(buckets(), 8);
    let takes = prop::collection::vec((0..8_usize, 1_u64..12), 1..150);
    for (case, (buckets, takes)) in drawn((keys, takes)).take(60).enumerate() {
        let policies: Vec<_> = (0..8).map(|key| format!("case-{case}-{key}")).collect();
        // A take that never fits is no plain take.
        let cost = |(key, cost): (usize, u64)| cost.min(buckets[key].capacity);
        let answers = takes
            .iter()
            .map(|&(key, one)| stage.take(&policies[key], buckets[key].limit, cost((key, one))));
        let answers = join_all(answers).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        let now = stage.clock.now().get();
        for (key, bucket) in buckets.iter().enumerate() {
            let of_key = takes.iter().zip(&answers).filter(|(take, _)| take.0 == key);
            let of_key: Vec<_> = of_key
                .map(|(take, answer)| (cost(*take), *answer))
                .collect();
            let owed = follow(bucket, std::time::Duration::ZERO, &of_key);
            let owed = owed.unwrap_or_else(|how| panic!("{bucket:?}: {how}"));
            if !of_key.is_empty() {
                let paid = stage.paid_us(bucket.limit, &policies[key]);
                assert_eq!(paid, now + owed.as_micros() as u64, "{bucket:?}");
            }
        }
        asked += answers.len();
        denied += answers.len() - allowed(&answers);
        stage.clock.advance(SECOND / 7);
    }
    assert_of_both_kinds(asked, denied);
    assert!(stage.scripts() - scripts < asked as u64 / 5);
}

#[tokio::test]
async fn five_hundred_keys_are_a_few_scripts_and_all_expire() {
    // In each round eight alone and up to six trips; twice in the first, as the server does not
    // know their scripts yet.
    assert_few_scripts_and_all_expire(LIMIT, 500, 84).await;
}

/// Five takes each of this many keys, with three permits at once: the last one when all that was
/// taken is paid back, but no key has expired.
pub(super) async fn assert_few_scripts_and_all_expire(limit: Limit, keys: usize, most: u64) {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let policies = policies(keys);
    let scripts = stage.scripts();
    for expected in [keys, keys, keys, 0, keys] {
        let answers = take_each(&stage, limit, &policies).await;
        assert_eq!(allowed(answers.iter().flatten()), expected, "{limit:?}");
        if expected == 0 {
            stage.clock.advance(4 * HOUR);
        }
    }
    let scripts = stage.scripts() - scripts;
    assert!(scripts <= most, "{limit:?}: {scripts} scripts");
    for policy in policies {
        let left_ms: i64 = stage.server.query(("PTTL", stage.key(limit, &policy)));
        assert!(left_ms > 0, "{limit:?}: {left_ms}");
    }
}

/// It would have expired at the instant at which it would have been paid.
#[tokio::test]
async fn a_debt_to_a_full_second_expires_later_after_an_acquire() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::gcra(100, SECOND).burst(1_000);
    // The first one goes alone, and takes the second at whose start the clock stands.
    let costs: Vec<_> = std::iter::once(100).chain([1; 39]).collect();
    let decisions = stage.take_all("second", limit, &costs).await;
    assert_eq!(allowed(&decisions), 40);
    let paid_us = stage.paid_us(limit, "second");
    assert_eq!(paid_us, stage.clock.now().get() + 1_390_000);
    assert_expires_with(&stage, &stage.key(limit, "second"), paid_us);
}

#[tokio::test]
async fn a_corrupt_value_fails_alone_and_is_not_changed() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let policies = policies(40);
    let corrupt = stage.key(LIMIT, &policies[20]);
    let now = stage.clock.now().get();
    let values = [
        "hello",
        "-7",
        "1.5",
        "nan",
        "0x7",
        "",
        &format!("{}.0", now + 5),
        "1e300",
        "99999999999999999999",
    ];
    let texts = values.map(|value| ("SET", value));
    for (command, value) in texts.into_iter().chain([("RPUSH", "hello")]) {
        stage.server.query::<()>(("DEL", &corrupt));
        stage.server.query::<()>((command, &corrupt, value));
        let answers = take_each(&stage, LIMIT, &policies);
        replies_beside_a_corrupt_key(&stage, &corrupt, answers, value).await;
    }
    // A corrupt key need not expire.
    stage.server.query::<()>(("DEL", &corrupt));
}

#[tokio::test]
async fn states_in_another_form_are_decided_alike() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let policies = policies(40);
    let paid = stage.clock.now().get() + HOUR.as_micros() as u64;
    stage.server.query::<()>((
        "SET",
        stage.key(LIMIT, &policies[20]),
        format!("{}:2147483648", paid - 1),
        "PX",
        HOUR.as_millis() as u64,
    ));
    let answers = take_each(&stage, LIMIT, &policies).await;
    for (position, answer) in answers.into_iter().enumerate() {
        let left = if position == 20 { 1 } else { 2 };
        assert_eq!(answer.unwrap().remaining(), left, "{position}");
    }
}

#[tokio::test]
async fn on_a_server_out_of_memory_denials_stay_denials() {
    assert_denied_without_memory(LIMIT).await;
}

/// With three permits at once: questions that need no write are answered, and no others take
/// anything.
pub(super) async fn assert_denied_without_memory(limit: Limit) {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let policies = policies(40);
    let (used_up, free) = policies.split_at(20);
    for _ in 0..3 {
        take_each(&stage, limit, used_up).await;
    }
    stage.server.set_full(true);
    let mixed: Vec<_> = used_up
        .iter()
        .zip(free)
        .flat_map(|(one, other)| [one.clone(), other.clone()])
        .collect();
    let answers = take_each(&stage, limit, &mixed).await;
    for pair in answers.chunks_exact(2) {
        let denied = pair[0].map(|decision| decision.is_allowed());
        assert_eq!(denied, Ok(false), "{limit:?}");
        assert_eq!(pair[1], Err(StoreErrorKind::Full), "{limit:?}");
    }
    stage.server.set_full(false);
    for answer in take_each(&stage, limit, free).await {
        assert_eq!(answer.unwrap().remaining(), 2, "{limit:?}");
    }
}

#[tokio::test]
async fn a_former_master_fails_them_all_and_counts_nothing() {
    assert_nothing_counted_without_a_master(LIMIT).await;
}

/// With three permits at once.
pub(super) async fn assert_nothing_counted_without_a_master(limit: Limit) {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let policies = policies(40);
    let replica_of = |host: &str, port: &str| {
        stage.server.query::<()>(("REPLICAOF", host, port));
    };
    // A replica of a master that does not exist.
    replica_of("127.0.0.1", "1");
    let refused = Err(StoreErrorKind::Busy);
    assert_eq!(take_each(&stage, limit, &policies).await, vec![refused; 40]);
    replica_of("NO", "ONE");
    // As soon as there is a connection again.
    while stage.take("other", limit, 1).await.is_err() {
        tokio::task::yield_now().await;
    }
    for answer in take_each(&stage, limit, &policies).await {
        assert_eq!(answer.unwrap().remaining(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_several_threads_share_many_keys_to_the_last_permit() {
    assert_shared_to_the_last_permit(Limit::gcra(50, DAY)).await;
}

/// With fifty permits a day.
pub(super) async fn assert_shared_to_the_last_permit(limit: Limit) {
    let stage = std::sync::Arc::new(Stage::start().await);
    let tasks = (0..8).map(|task: usize| {
        let stage = std::sync::Arc::clone(&stage);
        tokio::spawn(async move {
            let policies = policies(20);
            let mut had = 0;
            for round in 0..10 {
                let takes = (0..20).map(|number| {
                    let policy = &policies[(number * 7 + round + task) % 20];
                    stage.take(policy, limit, 1)
                });
                had += allowed(
                    join_all(takes)
                        .await
                        .iter()
                        .map(|answer| answer.as_ref().unwrap()),
                );
            }
            had
        })
    });
    let had: usize = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
    // 80 ask for each of them.
    assert_eq!(had, 20 * 50);
}
