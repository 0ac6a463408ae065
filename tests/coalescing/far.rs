//! A server that is far away: nobody waits for others' trips for as long as those take.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tower_throttle::{DAY, Decision, Limit};

use super::{Stage, allowed};
use crate::support::proxy::Way;

/// So long that a busy machine's delay does not amount to a second one.
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

/// In less time than two round trips take.
async fn take_in_time(stage: &Stage, policy: &str, limit: Limit) -> Decision {
    let answer = timeout(ROUND_TRIP * 9 / 5, stage.take(policy, limit, 1)).await;
    let answer = answer.unwrap_or_else(|_| panic!("{policy} waits for the trips of others"));
    answer.unwrap()
}

#[tokio::test]
async fn nobody_who_asks_about_the_same_key_waits_for_two_trips() {
    let stage = far(Stage::impatient().await).await;
    for (number, limit) in LIMITS.into_iter().enumerate() {
        let policy = format!("policy-{number}");
        let ask = async || {
            let mut decisions = Vec::new();
            for _ in 0..3 {
                decisions.push(take_in_time(&stage, &policy, limit).await);
            }
            decisions
        };
        let decisions = join_all([(); 4].map(|()| ask())).await.concat();
        assert_eq!(allowed(&decisions), 12);
        let remaining = decisions.iter().map(Decision::remaining).min();
        assert_eq!(remaining, Some(88), "{policy}");
    }
}

#[tokio::test]
async fn nobody_waits_for_two_trips_beside_those_who_ask_about_other_keys() {
    let stage = far(Stage::impatient().await).await;
    for limit in LIMITS {
        // Half of them come when the others have shared trips.
        let ask = async |number: u32| {
            sleep(ROUND_TRIP / 10 * (number % 2)).await;
            take_in_time(&stage, &format!("policy-{number}"), limit).await
        };
        assert_eq!(allowed(&join_all((0..80).map(ask)).await), 80);
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
