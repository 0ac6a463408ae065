//! What is counted when the replies to shared trips are lost.
//!
//! Of many questions that come at once, eight go alone. As their replies are lost, those behind
//! them go on four trips after a while, as many as there is room for, first come, first served; the
//! rest waits as long for these. So it is known exactly who was asked about by then, and nothing
//! may be counted for anybody else.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::poll;
use tower_throttle::{DAY, Limit, Outcome, RedisStoreBuilder, SECOND, StoreErrorKind, SystemClock};

use crate::faults::counting::{Counted, back};
use support::asking::GO_ALONE;
use support::proxy::Way;

const LIMIT: u64 = 100;
/// More than have room on the trips.
const ATTEMPTS: usize = 1_200;
/// One for each that went alone, and four shared ones.
const TRIPS: u64 = GO_ALONE as u64 + 4;
/// The questions on these trips: the first ones.
const PASSENGERS: usize = GO_ALONE + 4 * 256;

/// How long a trip is waited for: longer than it takes to see who went, and short enough that no
/// connection is checked first, as after a second of silence.
const PATIENCE: Duration = Duration::from_millis(500);

/// No permit comes back within a test, and the server knows the scripts of all trips.
async fn start(timeout: Duration) -> Counted {
    let limit = Limit::gcra(LIMIT, LIMIT as u32 * DAY);
    // Some go alone and the others wait, however long the way is to a busy machine.
    let patient = |store: RedisStoreBuilder| {
        store
            .wait_for_batches(PATIENCE)
            .clock_for_tests(SystemClock)
    };
    let counted = Counted::start_with(limit, timeout, patient).await;
    let warm = (0..20).map(|number| counted.limiter.check("api", format!("warm {number}")));
    for decision in join_all(warm).await {
        assert_eq!(decision.unwrap().outcome(), Outcome::Allowed);
    }
    counted.server.query::<()>("FLUSHALL");
    counted
}

/// Asks about all subjects at once, each by itself, while replies are lost. Returns why each
/// failed. `meanwhile` runs once no more trips begin and these have run.
async fn attempt(counted: &Counted, meanwhile: impl FnOnce()) -> Vec<Outcome> {
    let trips = || counted.server.calls("evalsha");
    let before = trips();
    counted.proxy.set(Way::DropReplies);
    let ask = |subject| Box::pin(counted.limiter.check("api", subject as u64));
    let mut all: Vec<_> = (0..ATTEMPTS).map(ask).collect();
    // However long that takes on a busy machine, nobody has waited yet.
    tokio::time::pause();
    for asked in &mut all {
        assert!(poll!(asked).is_pending());
    }
    tokio::time::resume();
    let all_have_run = async {
        let started = Instant::now();
        while trips() < before + TRIPS {
            assert!(started.elapsed() < 30 * SECOND);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(counted.server.keys().len(), PASSENGERS);
        meanwhile();
    };
    let (decisions, ()) = tokio::join!(join_all(all), all_have_run);
    let outcomes = decisions
        .into_iter()
        .map(|decision| decision.unwrap().outcome());
    outcomes.collect()
}

/// What is taken of each subject.
async fn used(counted: &Counted) -> Vec<u64> {
    let left = (0..ATTEMPTS).map(async |subject| {
        let decision = counted.limiter.peek("api", subject as u64).await.unwrap();
        assert_eq!(decision.store_failure(), None);
        LIMIT - decision.remaining()
    });
    join_all(left).await
}

#[tokio::test]
async fn batches_on_a_broken_connection_count_once_if_they_ran() {
    let counted = start(60 * SECOND).await;
    let outcomes = attempt(&counted, || {
        counted.proxy.set(Way::Pass);
        counted.proxy.cut();
    });
    let outcomes = outcomes.await;
    let interrupted = Outcome::FailedClosed(StoreErrorKind::Interrupted);
    let (went, waited) = outcomes.split_at(PASSENGERS);
    assert_eq!(went, [interrupted; PASSENGERS]);
    assert!(!waited.contains(&interrupted), "they were not sent yet");
    back(&counted).await;
    // Those who waited go on when there is a connection again, and fail if there is none yet.
    let is_counted = |outcome| outcome == interrupted || outcome == Outcome::Allowed;
    let expected = outcomes
        .iter()
        .map(|outcome| u64::from(is_counted(*outcome)));
    assert_eq!(used(&counted).await, expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn trips_that_were_given_up_count_once() {
    let counted = start(2 * SECOND).await;
    let outcomes = attempt(&counted, || {}).await;
    let late = Outcome::FailedClosed(StoreErrorKind::TimedOut);
    assert_eq!(outcomes, [late; ATTEMPTS]);
    counted.proxy.set(Way::Pass);
    back(&counted).await;
    // About the others nothing is known: when the last one of a trip gives up, another trip may
    // begin with those who have not given up yet.
    let taken = used(&counted).await;
    assert_eq!(taken[..PASSENGERS], [1; PASSENGERS]);
    assert!(taken.iter().all(|permits| *permits <= 1), "{taken:?}");
}
