//! Takes of several keys at once share trips whatever their keys, each all or nothing.

use futures_util::future::join_all;
use tower_throttle::store::PolicyId;
use tower_throttle::{Clock as _, DAY, HOUR, Key, Limit, SECOND, StoreErrorKind, Subject};

use super::model::{
    Answered, PLAIN, answer, answers_without_memory, assert_in_order, check, is_allowed,
    replies_beside_a_corrupt_key, scripts_of_four_rounds,
};
use super::ten_states::{STATES, questions, ten_states};
use super::{SLOW, Stage};

/// A take: under a policy of this name, about this subject.
type Asked<'a> = (&'a str, &'a str, Limit, u64);

const LIMIT: Limit = Limit::gcra(1, HOUR).burst(3);
/// For all clients.
pub(super) const PLENTY: Limit = Limit::gcra(10_000, DAY);

async fn take(stage: &Stage, asked: &[Asked<'_>]) -> Answered {
    let policies = asked.iter().map(|(name, ..)| PolicyId::new(name));
    let policies: Vec<_> = policies.collect();
    let checks = asked.iter().zip(&policies);
    let checks = checks
        .map(|((_, subject, limit, cost), policy)| check(policy, subject, *limit, *cost, false));
    answer(stage, &checks.collect::<Vec<_>>()).await
}

/// The answers to this many clients when they come together, under a policy for each and two for
/// all.
async fn take_one_each(stage: &Stage, clients: usize) -> Vec<Answered> {
    let names: Vec<_> = (0..clients)
        .map(|client| format!("client-{client}"))
        .collect();
    let takes = names.iter().map(|name| async move {
        let all = ["all", "all-again"].map(|policy| (policy, "all", PLENTY, 1));
        take(stage, &[(name, "alice", LIMIT, 1), all[0], all[1]]).await
    });
    join_all(takes).await
}

pub(super) fn key(policy: &str, subject: &str) -> String {
    let subject = Subject::from(&Key::from(subject));
    format!("throttle:gcra2:{{{subject}}}:{policy}")
}

/// At the end of that instant's second, to the millisecond, as far as can be told: from the times
/// before and after its expiry was read, however long that took.
pub(super) fn assert_expires_with(stage: &Stage, key: &str, paid_us: u64) {
    let now_ms = || {
        let (secs, us): (u64, u64) = stage.server.query("TIME");
        secs * 1_000 + us / 1_000
    };
    let before = now_ms();
    let pttl: u64 = stage.server.query(("PTTL", key));
    let expires_ms = before + pttl - 1..=now_ms() + pttl + 1;
    let second_ends_ms = paid_us.div_ceil(1_000_000) * 1_000;
    assert!(
        expires_ms.contains(&second_ends_ms),
        "{key}: {second_ends_ms}, not {expires_ms:?}"
    );
}

/// How many were taken in total under this policy.
pub(super) fn used_by(stage: &Stage, policy: &str) -> u64 {
    let interval_us = DAY.as_micros() as u64 / 10_000;
    let paid_us: Option<u64> = stage.server.query(("GET", &key(policy, "all")));
    paid_us.map_or(0, |paid_us| {
        (paid_us - stage.clock.now().get()) / interval_us
    })
}

/// How many were taken in total in either way.
fn used_of_all(stage: &Stage) -> [u64; 2] {
    ["all", "all-again"].map(|policy| used_by(stage, policy))
}

#[tokio::test]
async fn at_one_instant_answers_follow_the_order_of_arrival() {
    let stage = Stage::start().await;
    // A script that the server does not know is sent again, after others.
    assert!(is_allowed(
        take_one_each(&stage, 1).await[0].as_ref().unwrap()
    ));
    let asked = assert_in_order(&stage, &[PLAIN; STATES], ten_states, questions()).await;
    asked.assert_some_denied_in_shadow_only();
}

#[tokio::test]
async fn five_hundred_clients_are_a_few_scripts_and_every_key_expires() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = scripts_of_four_rounds(&stage, take_one_each).await;
    assert_eq!(used_of_all(&stage), [1_500; 2]);
    // In each round eight alone, and up to four batches.
    assert!(scripts <= 50, "{scripts} scripts");
    let is_ours = |key: &String| !key.contains("warm-up");
    for key in stage.server.keys().into_iter().filter(is_ours) {
        let paid_us: u64 = stage.server.query(("GET", &key));
        assert_expires_with(&stage, &key, paid_us);
    }
}

/// They would have expired at the instant at which they would have been paid.
#[tokio::test]
async fn debts_to_a_full_second_expire_later_after_acquires() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limit = Limit::gcra(100, SECOND).burst(1_000);
    // The first one goes alone, and takes the second at whose start the clock stands.
    let takes = std::iter::once(100).chain([1; 39]).map(|cost| {
        let asked = ["one", "two"].map(|policy| (policy, "alice", limit, cost));
        let stage = &stage;
        async move { take(stage, &asked).await }
    });
    for answer in join_all(takes).await {
        assert!(is_allowed(&answer.unwrap()));
    }
    for policy in ["one", "two"] {
        let paid_us = stage.paid_us(limit, policy);
        assert_eq!(paid_us, stage.clock.now().get() + 1_390_000);
        assert_expires_with(&stage, &key(policy, "alice"), paid_us);
    }
}

/// However many ask the same of the same keys, each key is written once for each of those who go
/// alone, and for each batch.
#[tokio::test]
async fn hot_keys_are_written_once_for_each_trip() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limits = [300, 200].map(|burst| Limit::gcra(1, DAY).burst(burst));
    let asked = [("one", "hot", limits[0], 1), ("two", "hot", limits[1], 1)];
    let writes = || stage.server.calls("set") + stage.server.calls("incrby");
    let before = writes();
    let answers = join_all((0..400).map(|_| take(&stage, &asked))).await;
    let mut left: Vec<_> = answers
        .into_iter()
        .map(Result::unwrap)
        .filter(|decisions| is_allowed(decisions))
        .map(|decisions| decisions[1].remaining())
        .collect();
    left.sort_unstable();
    assert!(left.into_iter().eq(0..200));
    let writes = writes() - before;
    assert!(writes <= 24, "{writes} writes");
}

#[tokio::test]
async fn denied_requests_that_share_a_trip_write_nothing() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let limits = [9, 1].map(|burst| Limit::gcra(1, DAY).burst(burst));
    let asked = [("one", "hot", limits[0], 1), ("two", "hot", limits[1], 1)];
    assert!(is_allowed(&take(&stage, &asked).await.unwrap()));
    let writes = || stage.server.calls("set") + stage.server.calls("incrby");
    let before = writes();
    for answer in join_all((0..40).map(|_| take(&stage, &asked))).await {
        assert!(!is_allowed(&answer.unwrap()));
    }
    assert_eq!(writes(), before);
}

/// One client's key holds something else: it fails alone and is left as it is, and nothing is taken
/// for it from the common limit. On failure, the message names what the key holds.
pub(super) async fn assert_fails_alone<const N: usize>(
    stage: &Stage,
    corrupt: &str,
    used_of_all: impl Fn() -> [u64; N],
    take_one_each: impl AsyncFn(&Stage, usize) -> Vec<Answered>,
    known_by: &str,
) {
    let (taken, scripts) = (used_of_all(), stage.scripts());
    let answers = take_one_each(stage, 40);
    let others = replies_beside_a_corrupt_key(stage, corrupt, answers, known_by).await;
    // The others share trips as usual, and wait for nobody who went alone for that long: eight
    // alone and three or four trips, twice where the server does not know their scripts yet, and
    // the failing one by another script.
    let scripts = stage.scripts() - scripts;
    assert!(scripts <= 25, "{known_by}: {scripts} scripts");
    let allowed = others.iter().filter(|answer| is_allowed(answer)).count();
    let taken = taken.map(|taken| taken + allowed as u64);
    assert_eq!(used_of_all(), taken, "{known_by}");
}

#[tokio::test]
async fn a_key_of_another_type_fails_its_questions_alone() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let corrupt = key("client-20", "alice");
    let paid = format!("{}.0", stage.clock.now().get() + 5);
    let texts = ["hello", "-7", "1.5", "nan", "0x7", "", &paid, "1e300"].map(|text| ("SET", text));
    for (command, value) in texts.into_iter().chain([("RPUSH", "hello")]) {
        let _: i64 = stage.server.query(("DEL", &corrupt));
        let _: redis::Value = stage.server.query((command, &corrupt, value));
        let taken = || used_of_all(&stage);
        assert_fails_alone(&stage, &corrupt, taken, take_one_each, value).await;
    }
    // A corrupt key need not expire.
    let _: i64 = stage.server.query(("DEL", &corrupt));
}

/// They are asked once more, by another script, and enforced takes beside them are taken once.
#[tokio::test]
async fn an_impossible_shadow_debt_is_corrupt_alone() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let too_much = (1_u64 << 53).to_string();
    let shadow = key("shadow", "alice");
    let _: () = stage
        .server
        .query(("SET", &shadow, &too_much, "EX", "3600"));
    let [all, shadow] = ["all", "shadow"].map(PolicyId::new);
    let takes = (0..40).map(|_| async {
        let checks = [
            check(&shadow, "alice", LIMIT, 1, true),
            check(&all, "all", PLENTY, 1, false),
        ];
        answer(&stage, &checks).await.unwrap()
    });
    for decisions in join_all(takes).await {
        assert!(decisions[1].is_allowed());
    }
    assert_eq!(used_of_all(&stage)[0], 40);
}

#[tokio::test]
async fn states_in_another_form_are_decided_alike() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let paid_us = stage.clock.now().get() + HOUR.as_micros() as u64;
    let state = format!("{}:2147483648", paid_us - 1);
    let _: () = stage
        .server
        .query(("SET", &key("client-20", "alice"), &state, "EX", "3600"));
    for (position, answer) in take_one_each(&stage, 40).await.into_iter().enumerate() {
        let left = if position == 20 { 1 } else { 2 };
        assert_eq!(answer.unwrap()[0].remaining(), left, "{position}");
    }
    assert_eq!(used_of_all(&stage), [40; 2]);
}

/// Questions that need no write are answered, as if nobody had asked who needs one.
#[tokio::test]
async fn on_a_full_server_denials_hold_and_nothing_is_acquired() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let meanwhile = async || assert_eq!(used_of_all(&stage), [60; 2]);
    let [denied, later] = answers_without_memory(&stage, take_one_each, meanwhile).await;
    for decisions in denied {
        assert!(!decisions[0].is_allowed());
        assert_eq!(decisions[1].remaining(), 10_000 - 60);
    }
    assert!(later.iter().all(|answer| answer[0].remaining() == 2));
}

#[tokio::test]
async fn a_former_master_fails_them_and_counts_nothing() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    // A replica of a master that does not exist.
    let _: () = stage.server.query(("REPLICAOF", "127.0.0.1", "1"));
    let answers = take_one_each(&stage, 40).await;
    assert_eq!(answers, vec![Err(StoreErrorKind::Busy); 40]);
    let _: () = stage.server.query(("REPLICAOF", "NO", "ONE"));
    assert_eq!(used_of_all(&stage), [0; 2]);
}

/// They share the limit for all of them, whichever way they go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_several_threads_share_keys_to_the_last_permit() {
    let stage = std::sync::Arc::new(Stage::start().await);
    let limit = Limit::gcra(900, DAY);
    let tasks = (0..8).map(|task: usize| {
        let stage = std::sync::Arc::clone(&stage);
        tokio::spawn(async move {
            let names: Vec<_> = (0..20).map(|name| format!("name-{name}")).collect();
            let mut had = 0;
            for round in 0..10 {
                let takes = (0..20).map(|number| {
                    let name = names[(number * 7 + round + task) % 20].as_str();
                    let own = Limit::gcra(50, DAY);
                    let asked = [(name, "alice", own, 1), ("all", "all", limit, 1)];
                    let stage = &stage;
                    async move { take(stage, &asked).await.unwrap() }
                });
                let answers = join_all(takes).await;
                had += answers.iter().filter(|answer| is_allowed(answer)).count();
            }
            had
        })
    });
    let had: usize = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
    // 80 ask for each name, of which 50 may, 1 000 in all.
    assert_eq!(had, 900);
}
