//! Requests of several policies under any limits, some of them not plain, share scripts, too.

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::Algorithm;
use tower_throttle::store::PolicyId;
use tower_throttle::{HOUR, Limit, MINUTE, Outcome, Penalty, SECOND, StoreErrorKind, per_second};

use super::model::{
    Answered, Place, Question, States, answer, answers_without_memory, assert_in_order, check,
    in_runs, is_allowed, replies_beside_a_corrupt_key, scripts_of_four_rounds,
};
use super::{SLOW, Stage};

const SUBJECTS: [&str; 3] = ["alice", "bob", "carol"];

/// Each subject has one of each, and the last one is for all of them.
const LIMITS: [fn(u64) -> Limit; 7] = [
    |permits| Limit::gcra(7, 2 * SECOND).burst(3 * permits),
    |permits| Limit::fixed_window(3 * permits, 5 * SECOND),
    |permits| Limit::sliding_log(3 * permits, 5 * SECOND),
    |permits| Limit::sliding_window(3 * permits, 5 * SECOND),
    |permits| Limit::sliding_counter(3 * permits, 5 * SECOND),
    |permits| Limit::leaky_bucket(3 * permits, per_second(3)),
    |permits| Limit::gcra(1, SECOND).burst(20 * permits),
];
const OF_EACH: usize = LIMITS.len() - 1;
const OF_ALL: usize = SUBJECTS.len() * OF_EACH;

fn states(case: usize, limits: &[Limit]) -> States {
    let place = |policy: usize, subject| Place {
        policy: PolicyId::new(&format!("case-{case}-{policy}")),
        subject,
        limit: limits[policy],
    };
    let of_each = SUBJECTS
        .iter()
        .flat_map(|subject| (0..OF_EACH).map(move |policy| place(policy, *subject)));
    States::new(of_each.chain([place(OF_EACH, "everybody")]).collect())
}

/// Each is about one subject and about all of them, under all policies: one script. Some are in
/// shadow, or none.
fn questions(some_in_shadow: bool) -> impl Strategy<Value = Vec<Question>> {
    let shadows = match some_in_shadow {
        false => Just(vec![false; LIMITS.len()]).boxed(),
        true => prop::collection::vec(prop::bool::weighted(0.4), LIMITS.len())
            .prop_filter("one is in shadow", |shadows| shadows.contains(&true))
            .boxed(),
    };
    in_runs(
        (0..SUBJECTS.len(), shadows, 1_u64..5).prop_map(|(subject, shadows, cost)| {
            let of_each = (0..OF_EACH).map(|policy| subject * OF_EACH + policy);
            Question {
                states: of_each.chain([OF_ALL]).zip(shadows).collect(),
                cost,
            }
        }),
    )
}

/// Makes the script known to the server: a question that has to send it arrives late.
async fn warm_up(stage: &Stage, is_shadow: bool) {
    let limits = LIMITS.map(|limit| limit(5));
    let policies = (0..OF_EACH).chain([OF_ALL]);
    let question = Question {
        states: policies.map(|policy| (policy, is_shadow)).collect(),
        cost: 1,
    };
    let answer = answer(stage, &states(60, &limits).checks(&question)).await;
    assert!(is_allowed(&answer.unwrap()));
}

#[tokio::test]
async fn at_one_instant_answers_follow_the_order_of_arrival() {
    let stage = Stage::start().await;
    warm_up(&stage, false).await;
    assert_in_order(&stage, &LIMITS, states, questions(false)).await;
}

#[tokio::test]
async fn in_shadow_the_answers_are_those_of_the_order_of_arrival_too() {
    let stage = Stage::start().await;
    warm_up(&stage, true).await;
    let asked = assert_in_order(&stage, &LIMITS, states, questions(true)).await;
    asked.assert_some_denied_in_shadow_only();
}

const WINDOW: Limit = Limit::fixed_window(3, HOUR);
const ALL: Limit = Limit::gcra(10_000, HOUR);

/// Under a window of its own and a limit that all share.
async fn take(stage: &Stage, client: &str, is_shadow: bool) -> Answered {
    let [own, all] = ["own", "all"].map(PolicyId::new);
    let checks = [
        check(&own, client, WINDOW, 1, is_shadow),
        check(&all, "everybody", ALL, 1, false),
    ];
    answer(stage, &checks).await
}

async fn take_one_each(stage: &Stage, clients: usize) -> Vec<Answered> {
    let clients = (0..clients).map(async |client| take(stage, &format!("{client}"), false).await);
    join_all(clients).await
}

#[tokio::test]
async fn five_hundred_clients_are_a_few_scripts_and_every_key_expires() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = scripts_of_four_rounds(&stage, take_one_each).await;
    // Up to 64 of two checks go together.
    assert!(scripts <= 4 * 14, "{scripts} scripts");
    let keys = stage.server.keys();
    assert!(keys.len() > 500, "{}", keys.len());
    for key in keys {
        let left_ms: i64 = stage.server.query(("PTTL", key));
        assert!(left_ms > 0, "{left_ms}");
    }
}

#[tokio::test]
async fn a_question_that_fails_fails_alone_and_takes_nothing() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let own = PolicyId::new("own");
    let corrupt = check(&own, "20", WINDOW, 1, false).subject;
    let corrupt = format!("throttle:fixed_window2:{{{corrupt}}}:own");
    for (command, value) in [("SET", "hello"), ("SADD", "hello")] {
        stage.server.query::<()>((command, &corrupt, value));
        let left_of_all = || async {
            let all = PolicyId::new("all");
            let look = answer(&stage, &[check(&all, "everybody", ALL, 0, false)]).await;
            look.unwrap()[0].remaining()
        };
        let left = left_of_all().await;
        let answers = take_one_each(&stage, 40);
        let others = replies_beside_a_corrupt_key(&stage, &corrupt, answers, value).await;
        assert!(others.iter().all(|answer| is_allowed(answer)));
        assert_eq!(left_of_all().await, left - 39);
        // In shadow it fails nobody.
        let answers = (0..40).map(async |client| take(&stage, &format!("{client}"), true).await);
        for (client, answer) in join_all(answers).await.into_iter().enumerate() {
            let answer = answer.unwrap();
            let is_corrupt = answer[0].store_failure() == Some(StoreErrorKind::CorruptValue);
            assert_eq!(is_corrupt, client == 20);
            assert!(answer[1].is_allowed());
        }
        stage.server.query::<()>(("DEL", &corrupt));
    }
}

/// Questions that need no write are answered.
#[tokio::test]
async fn on_a_full_server_denials_hold_and_nothing_is_acquired() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let [denied, later] = answers_without_memory(&stage, take_one_each, async || ()).await;
    assert!(denied.iter().all(|answer| !is_allowed(answer)));
    assert!(later.iter().all(|answer| answer[0].remaining() == 2));
}

/// What is not written is not taken, also with regard to those who are decided later.
#[tokio::test]
async fn on_a_full_server_failed_acquires_deny_no_later_ones() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    take_one_each(&stage, 3).await;
    stage.server.set_full(true);
    let crowd = (0..20).map(async |_| take(&stage, "alice", false).await);
    for answer in join_all(crowd).await {
        assert_eq!(answer, Err(StoreErrorKind::Full));
    }
    stage.server.set_full(false);
    let answer = take(&stage, "alice", false).await.unwrap();
    assert_eq!(answer[0].remaining(), 2);
}

/// The same in shadow, beside a look, which needs no write.
#[tokio::test]
async fn on_a_full_server_failed_shadow_takes_deny_no_later_one() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let [own, all] = ["own", "all"].map(PolicyId::new);
    let ask = async || {
        let checks = [
            check(&own, "alice", WINDOW, 1, true),
            check(&all, "everybody", ALL, 0, false),
        ];
        answer(&stage, &checks).await.unwrap()
    };
    stage.server.set_full(true);
    for answer in join_all((0..40).map(|_| ask())).await {
        assert_eq!(answer[0].store_failure(), Some(StoreErrorKind::Full));
        assert!(answer[1].is_allowed());
    }
    stage.server.set_full(false);
    assert_eq!(ask().await[0].remaining(), 2);
}

/// Each denial counts, one after the other, until the penalty bans.
#[tokio::test]
async fn a_penalty_bans_within_a_trip_after_its_number_of_denials() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let policy = PolicyId::new("login");
    let penalty = Penalty::after(5, MINUTE, HOUR);
    let ask = || async {
        let limit = check(&policy, "mallory", WINDOW, 1, false);
        let mut ban = limit;
        ban.algorithm = Algorithm::try_from(&penalty).unwrap();
        answer(&stage, &[limit, ban]).await.unwrap()
    };
    let scripts = stage.scripts();
    let answers = join_all((0..30).map(|_| ask())).await;
    let outcomes: Vec<_> = answers
        .iter()
        .map(|answer| {
            answer
                .iter()
                .map(|decision| decision.outcome())
                .collect::<Vec<_>>()
        })
        .collect();
    let [allowed, denied, banned] = [
        [Outcome::Allowed, Outcome::Allowed],
        [Outcome::Denied, Outcome::Allowed],
        [Outcome::Denied, Outcome::Banned],
    ]
    .map(|of_both| {
        outcomes
            .iter()
            .filter(|outcome| **outcome == of_both)
            .count()
    });
    assert_eq!([allowed, denied + banned], [3, 27], "{outcomes:?}");
    assert!(banned >= 22, "{outcomes:?}");
    let scripts = stage.scripts() - scripts;
    assert!(scripts <= 10, "{scripts} scripts");
}
