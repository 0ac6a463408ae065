//! A server that is far away: nobody waits for others' trips for as long as those take.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::sleep;
use tower_throttle::{DAY, Decision, Limit, RedisStore};

use super::{PATIENT, Stage, allowed};
use support::proxy::Way;

const ROUND_TRIP: Duration = Duration::from_secs(1);
const LIMITS: [Limit; 3] = [
    Limit::gcra(100, DAY),
    Limit::fixed_window(100, DAY),
    Limit::sliding_log(100, DAY),
];

/// The server knows all scripts, and is far away from now on.
async fn far(stage: Stage) -> Stage {
    for limit in LIMITS {
        for count in [1, 1, 5, 5, 5] {
            let warm_up = format!("warm-up-{count}");
            stage.take_all(&warm_up, limit, &vec![1; count]).await;
        }
    }
    stage.proxy.set(Way::Delay(ROUND_TRIP));
    stage
}

/// A decision, and how long it took.
async fn take(stage: &Stage, policy: String, limit: Limit) -> (Decision, Duration) {
    let asked = Instant::now();
    let decision = stage.take(&policy, limit, 1).await.unwrap();
    (decision, asked.elapsed())
}

/// What was decided when nobody waited for as long as two round trips take. A busy machine delays
/// somebody, but not at each attempt.
async fn in_time(
    round_trip: Duration,
    ask: impl AsyncFn(u32) -> Vec<(Decision, Duration)>,
) -> Vec<Decision> {
    let mut slow = Vec::new();
    for attempt in 0..4 {
        let (decisions, took): (_, Vec<_>) = ask(attempt).await.into_iter().unzip();
        let longest = took.into_iter().max().unwrap();
        if longest < round_trip * 9 / 5 {
            return decisions;
        }
        slow.push(longest);
    }
    panic!("they wait for the trips of others: {slow:?}");
}

#[tokio::test]
async fn nobody_who_asks_about_the_same_key_waits_for_two_trips() {
    let stage = &far(Stage::impatient().await).await;
    for (number, limit) in LIMITS.into_iter().enumerate() {
        let decisions = in_time(ROUND_TRIP, async |attempt| {
            let policy = format!("policy-{number}-{attempt}");
            let ask = async || {
                let mut answers = Vec::new();
                for _ in 0..3 {
                    answers.push(take(stage, policy.clone(), limit).await);
                }
                answers
            };
            join_all([(); 4].map(|()| ask())).await.concat()
        });
        let decisions = decisions.await;
        assert_eq!(allowed(&decisions), 12);
        let remaining = decisions.iter().map(Decision::remaining).min();
        assert_eq!(remaining, Some(88), "{limit:?}");
    }
}

#[tokio::test]
async fn no_question_waits_for_two_trips_because_of_other_keys() {
    let stage = &far(Stage::impatient().await).await;
    for limit in LIMITS {
        let decisions = in_time(ROUND_TRIP, async |attempt| {
            // Half of them come when the others have shared trips.
            let ask = async |number: u32| {
                sleep(ROUND_TRIP / 10 * (number % 2)).await;
                take(stage, format!("policy-{number}-{attempt}"), limit).await
            };
            join_all((0..80).map(ask)).await
        });
        assert_eq!(allowed(&decisions.await), 80);
    }
}

#[tokio::test]
async fn the_longest_wait_for_a_trip_can_be_set() {
    let stage = far(Stage::start().await).await;
    let scripts = stage.scripts();
    let take = async |number| {
        sleep(ROUND_TRIP / 4 * number).await;
        stage.take("api", LIMITS[0], 1).await.unwrap()
    };
    assert_eq!(allowed(&join_all((0..3).map(take)).await), 3);
    assert_eq!(stage.scripts() - scripts, 2);
}

/// By its first answers, the server is far.
#[tokio::test]
async fn nobody_waits_for_others_answers_of_a_far_server() {
    const FAR: Duration = Duration::from_millis(300);
    let stage = Stage::start().await;
    stage.proxy.set(Way::Delay(FAR));
    // They would wait for as long as it takes.
    let store = RedisStore::builder(&stage.proxy.url()).wait_for_batches(PATIENT);
    let store = store.connect().await.unwrap().without_deny_cache();
    let stage = Stage { store, ..stage };
    assert!(
        take(&stage, "first".to_owned(), LIMITS[0])
            .await
            .0
            .is_allowed()
    );
    let decisions = in_time(FAR, async |attempt| {
        let ask = |number| take(&stage, format!("policy-{number}-{attempt}"), LIMITS[0]);
        join_all((0..60).map(ask)).await
    });
    assert_eq!(allowed(&decisions.await), 60);
}
