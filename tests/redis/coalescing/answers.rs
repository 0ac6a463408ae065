//! The answers are exactly those of some order of the requests.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::{Clock as _, DAY, Decision, HOUR, Limit, Rate, SECOND};

use super::{SLOW, Stage, allowed, assert_of_both_kinds};
use support::drawn::drawn;
use support::redis::Server;

/// A limit whose permits come back one by one, each after a whole number of microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) limit: Limit,
    interval: Duration,
    pub(super) capacity: u64,
}

impl Bucket {
    fn price(&self, cost: u64) -> Duration {
        self.interval * cost as u32
    }

    /// How many permits fit with this debt.
    fn room(&self, debt: Duration) -> u64 {
        let room = self.price(self.capacity).saturating_sub(debt);
        (room.as_micros() / self.interval.as_micros()) as u64
    }
}

pub(super) fn buckets() -> impl Strategy<Value = Bucket> {
    let interval = prop_oneof![
        Just(Duration::from_micros(1)),
        Just(Duration::from_micros(333)),
        Just(SECOND),
        Just(DAY),
    ];
    (0..3, interval, 1_u64..60).prop_map(|(algorithm, interval, capacity)| {
        let rate = Rate::new(1, interval.max(Duration::from_millis(1)));
        let (rate, interval) = match interval.as_micros() {
            1 => (Rate::new(1_000, Duration::from_millis(1)), interval),
            333 => (Rate::new(1_000, Duration::from_millis(333)), interval),
            _ => (rate, interval),
        };
        let limit = match algorithm {
            0 => Limit::token_bucket(capacity, rate),
            1 => Limit::leaky_bucket(capacity, rate).without_delay(),
            _ if interval < SECOND => {
                let millis = interval.as_micros() as u64;
                Limit::gcra(1_000, Duration::from_millis(millis)).burst(capacity)
            }
            _ => Limit::gcra(1, interval).burst(capacity),
        };
        Bucket {
            limit,
            interval,
            capacity,
        }
    })
}

/// Finds an order of takes at one instant that gives these answers, with this debt before them.
/// Returns the debt after them.
pub(super) fn follow(
    bucket: &Bucket,
    before: Duration,
    takes: &[(u64, Decision)],
) -> Result<Duration, String> {
    // Each allowed answer contains the debt after it.
    let (mut let_in, denied): (Vec<_>, Vec<_>) = takes
        .iter()
        .partition(|(_, decision)| decision.is_allowed());
    let_in.sort_by_key(|(_, decision)| decision.reset_after());
    let mut owed = vec![before];
    for (cost, decision) in let_in {
        let debt = owed[owed.len() - 1] + bucket.price(cost);
        let is_next = decision.reset_after() == debt
            && decision.remaining() == bucket.room(debt)
            && debt <= bucket.price(bucket.capacity);
        if !is_next {
            return Err(format!("{cost} after {owed:?}: {decision:?}"));
        }
        owed.push(debt);
    }
    for (cost, decision) in denied {
        let debt = decision.reset_after();
        let wait = (debt + bucket.price(cost)).saturating_sub(bucket.price(bucket.capacity));
        let stands_somewhere = owed.contains(&debt)
            && !wait.is_zero()
            && decision.remaining() == bucket.room(debt)
            && decision.retry_after() == Some(wait);
        if !stands_somewhere {
            return Err(format!("{cost} among {owed:?}: {decision:?}"));
        }
    }
    Ok(owed[owed.len() - 1])
}

#[tokio::test]
async fn at_one_instant_the_answers_are_those_of_some_order() {
    let stage = Stage::start().await;
    let (mut asked, mut denied) = (0, 0);
    let scripts = stage.scripts();
    let costs = prop::collection::vec(1_u64..12, 1..80);
    let histories = drawn((buckets(), costs, 0_u64..12)).take(150);
    for (case, (bucket, mut costs, used)) in histories.enumerate() {
        if case % 3 == 0 {
            // Whole runs of the same cost.
            costs.sort_unstable();
        }
        // A take that never fits is no plain take.
        costs
            .iter_mut()
            .for_each(|cost| *cost = (*cost).min(bucket.capacity));
        let used = used.min(bucket.capacity);
        let policy = format!("case-{case}");
        let mut owed = Duration::ZERO;
        if used > 0 {
            owed = stage
                .take(&policy, bucket.limit, used)
                .await
                .unwrap()
                .reset_after();
        }
        let decisions = stage.take_all(&policy, bucket.limit, &costs).await;
        let takes: Vec<_> = costs.iter().copied().zip(decisions).collect();
        let owed = follow(&bucket, owed, &takes);
        let owed = owed.unwrap_or_else(|how| panic!("{bucket:?} {costs:?}: {how}"));
        let now = Duration::from_micros(stage.clock.now().get());
        let paid = Duration::from_micros(stage.paid_us(bucket.limit, &policy));
        assert_eq!(paid, now + owed, "{bucket:?} {costs:?}");
        asked += takes.len();
        denied += takes.len() - allowed(takes.iter().map(|(_, decision)| decision));
    }
    assert_of_both_kinds(asked, denied);
    // These were takes decided together.
    assert!(stage.scripts() - scripts < asked as u64 / 2);
}

/// The costs that are allowed add up to the debt at the end, to the microsecond.
#[tokio::test]
async fn while_time_goes_on_no_permit_is_lost_or_handed_out_twice() {
    let stage = Stage::start().await;
    let limit = Limit::gcra(1, SECOND).burst(100);
    let mut paid = stage.clock.now().get();
    let _ = stage.take("api", limit, 50).await.unwrap();
    paid += 50_000_000;
    let mut waits = 0;
    for wave in 0..200_u64 {
        let takes = (0..20).map(|number: u64| {
            let stage = &stage;
            async move {
                for _ in 0..number % 5 {
                    tokio::task::yield_now().await;
                    stage
                        .clock
                        .advance(Duration::from_micros(20_000 + wave * 100));
                }
                let cost = 1 + ((wave * 7 + number * number) % 9);
                (cost, stage.take("api", limit, cost).await.unwrap())
            }
        });
        let began = stage.clock.now().get();
        let answers = join_all(takes).await;
        let elapsed = Duration::from_micros(stage.clock.now().get() - began);
        let before = paid;
        for (cost, decision) in &answers {
            if decision.is_allowed() {
                paid += (*cost) * 1_000_000;
            }
        }
        assert_eq!(stage.paid_us(limit, "api"), paid, "wave {wave}");
        let (least, most) = (before - began, paid - began);
        for (cost, decision) in answers {
            let owed = decision.reset_after();
            assert!(owed <= 100 * SECOND && owed <= Duration::from_micros(most));
            assert!(owed + elapsed >= Duration::from_micros(least));
            if let Some(wait) = decision.retry_after() {
                assert_eq!(wait, owed + Duration::from_secs(cost) - 100 * SECOND);
                waits += 1;
            }
        }
    }
    assert!(waits > 0);
}

#[tokio::test]
async fn policies_do_not_mix() {
    let stage = Stage::start().await;
    let limits = [5, 9].map(|capacity| Limit::gcra(capacity, DAY));
    stage.proxy.set(SLOW);
    let takes = (0..60).map(|number| {
        let policy = ["a", "b"][number % 2];
        stage.take(policy, limits[number % 2], 1)
    });
    let answers: Vec<_> = join_all(takes).await;
    let of = |policy| answers.iter().skip(policy).step_by(2).flatten();
    assert_eq!([0, 1].map(|policy| allowed(of(policy))), [5, 9]);
}

/// As with [`limit_by`](tower_throttle::Policy::limit_by): they count in one key.
#[tokio::test]
async fn acquires_of_one_key_are_decided_each_by_its_own_limit() {
    let stage = Stage::start().await;
    let limits = [30, 60].map(|capacity| Limit::gcra(1, HOUR).burst(capacity));
    stage.proxy.set(SLOW);
    let takes = (0..200).map(|number| stage.take("api", limits[number % 2], 1));
    let answers: Vec<_> = join_all(takes).await;
    let of = |limit| answers.iter().skip(limit).step_by(2).flatten();
    let [few, many] = [0, 1].map(|limit| allowed(of(limit)));
    assert_eq!(few + many, 60);
    assert!(few <= 30, "{few}");
    let hours = stage.paid_us(limits[0], "api") - stage.clock.now().get();
    assert_eq!(hours, 60 * HOUR.as_micros() as u64);
}

#[tokio::test]
async fn five_hundred_takes_of_one_key_are_a_few_scripts() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let scripts = stage.scripts();
    let limit = Limit::gcra(400, DAY);
    let decisions = stage.take_all("api", limit, &[1; 500]).await;
    assert_eq!(allowed(&decisions), 400);
    // First come, first served; but the first trips may overtake each other.
    assert_eq!(allowed(&decisions[..390]), 390);
    let scripts = stage.scripts() - scripts;
    assert!(scripts <= 25, "{scripts} scripts");
}

/// With a log, where each step reads its length.
#[tokio::test]
async fn takes_of_one_key_of_several_costs_are_a_few_steps() {
    let stage = Stage::start().await;
    stage.proxy.set(SLOW);
    let (limit, costs) = (Limit::sliding_log(1_000, DAY), [3, 1, 2].repeat(170));
    let steps = stage.server.calls("llen");
    let decisions = stage.take_all("api", limit, &costs).await;
    let steps = stage.server.calls("llen") - steps;
    let answers = decisions.iter().zip(&costs);
    let let_in = answers.filter(|(decision, _)| decision.is_allowed());
    assert_eq!(let_in.map(|(_, cost)| cost).sum::<u64>(), 1_000);
    // First come, first served; but the first trips may overtake each other.
    assert_eq!(allowed(&decisions[..480]), 480);
    assert!(steps <= 60, "{steps} steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_on_several_threads_share_a_key_to_the_last_permit() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let stage = Arc::new(Stage {
        store,
        ..Stage::start().await
    });
    let limit = Limit::gcra(1_000, DAY);
    let tasks = (0..8).map(|_| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            let mut had = 0;
            for round in 0..10 {
                let costs: Vec<_> = (0..20).map(|number| 1 + (number + round) % 3).collect();
                let decisions = stage.take_all("api", limit, &costs).await;
                for (cost, decision) in costs.iter().zip(decisions) {
                    had += if decision.is_allowed() { *cost } else { 0 };
                }
            }
            had
        })
    });
    let had = join_all(tasks).await;
    // A cost of one always fills it up.
    assert_eq!(had.into_iter().map(Result::unwrap).sum::<u64>(), 1_000);
    drop(server);
}
