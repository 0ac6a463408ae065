//! A failure is reported to all who wait for the same trip.

use futures_util::future::join_all;
use tower_throttle::{DAY, Limit, StoreErrorKind};

use super::{SLOW, Stage, allowed};
use support::limits;
use support::proxy::Way;
use support::until::until;

const LIMIT: Limit = Limit::gcra(5_000, DAY);

async fn failures(stage: &Stage, count: usize) -> Vec<Option<StoreErrorKind>> {
    let answers = join_all((0..count).map(|_| stage.take("api", LIMIT, 1))).await;
    answers.into_iter().map(Result::err).collect()
}

#[tokio::test]
async fn a_refusal_of_the_server_fails_every_passenger() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    stage.server.set_full(true);
    let found = failures(&stage, 50).await;
    assert_eq!(found, [Some(StoreErrorKind::Full); 50]);
    stage.server.set_full(false);
    assert_eq!(failures(&stage, 50).await, [None; 50]);
}

/// As if they had asked alone: a denial needs no memory.
#[tokio::test]
async fn on_a_full_server_a_denial_holds_beside_failed_acquires() {
    let stage = Stage::start().await;
    for (name, limit) in limits::in_time(9, DAY) {
        stage.proxy.set(Way::Pass);
        stage.take_all(name, limit, &[3]).await;
        stage.proxy.set(SLOW);
        stage.server.set_full(true);
        let takes = (0..40).map(|number| stage.take(name, limit, [1, 7][number % 2]));
        let answers = join_all(takes).await;
        stage.server.set_full(false);
        for (number, answer) in answers.into_iter().enumerate() {
            match answer {
                Err(why) => assert_eq!((number % 2, why), (0, StoreErrorKind::Full), "{name}"),
                Ok(decision) => {
                    assert_eq!((number % 2, decision.is_allowed()), (1, false), "{name}")
                }
            }
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_fails_those_under_way() {
    let stage = Stage::start().await;
    stage.proxy.set(Way::CutReplies);
    let found = failures(&stage, 50).await;
    assert!(found[0].is_some(), "{found:?}");
    stage.proxy.set(Way::Pass);
    // As soon as there is one.
    until("a new connection", async || {
        failures(&stage, 1).await == [None]
    })
    .await;
    assert_eq!(failures(&stage, 50).await, [None; 50]);
}

/// They fail at once instead of waiting without bound.
#[tokio::test]
async fn no_more_than_a_thousand_are_under_way() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let found = failures(&stage, 1_100).await;
    let (asked, refused) = found.split_at(1_024);
    assert!(asked.iter().all(Option::is_none));
    let overloaded = Some(StoreErrorKind::Overloaded);
    assert!(refused.iter().all(|found| *found == overloaded));
    let decisions = stage.take_all("api", LIMIT, &[1; 1_000]).await;
    assert_eq!(allowed(&decisions), 1_000);
}
