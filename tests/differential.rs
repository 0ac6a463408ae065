//! The same random histories through the Rust twins, the memory store and the scripts on a real
//! server: every decision must be the same.
//!
//! `HISTORIES` sets how many histories are run, 10 000 unless it is set.

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tower_throttle::algorithm::{Algorithm, State};
use tower_throttle::{
    Answer, Check, Clock, DAY, Decisions, FailureMode, Key, Limit, MINUTE, ManualClock,
    MemoryStore, Micros, PolicyId, RedisStore, SECOND, Store, StoreError, Subject,
};

const STEPS: usize = 50;
const POLICIES: usize = 3;

#[derive(Clone, Debug)]
struct History {
    limits: [Limit; POLICIES],
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    time: Time,
    /// A policy's limit is replaced before the step.
    change: Option<(usize, Limit)>,
    key: u8,
    /// The cost by each policy that is asked.
    costs: [Option<u32>; POLICIES],
}

/// How the clock moves before a step.
#[derive(Clone, Copy, Debug)]
enum Time {
    Stands,
    On(Duration),
    Back(Duration),
    /// To the announced end of the last wait, or this much before.
    ToRetry {
        early_us: u64,
    },
    /// To the announced reset of the last step.
    ToReset,
}

fn limits() -> impl Strategy<Value = Limit> {
    let period = prop_oneof![
        Just(Duration::from_millis(1)),
        Just(Duration::from_micros(7_001)),
        Just(SECOND),
        Just(7 * SECOND),
        Just(MINUTE),
        Just(DAY),
        Just(366 * DAY),
    ];
    let permits = prop_oneof![
        6 => 1_u32..=12,
        2 => prop_oneof![Just(300_000), Just(999_983), Just(10_000_000)],
        1 => Just(u32::MAX),
    ];
    let burst = prop::option::of(prop_oneof![4 => 1_u32..=12, 1 => Just(1_000)]);
    (0..5, permits, period, burst).prop_map(|(algorithm, permits, period, burst)| {
        match algorithm {
            0 => Limit::fixed_window(permits, period),
            1 => Limit::fixed_window(permits, period).aligned(),
            2 => Limit::sliding_log(permits, period),
            3 => Limit::sliding_counter(permits, period),
            _ => {
                let gcra = Limit::gcra(permits, period);
                let with_burst = burst.map_or(gcra, |burst| gcra.burst(burst));
                // A burst of centuries is no limit.
                Algorithm::try_from(&with_burst).map_or(gcra, |_| with_burst)
            }
        }
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let span = prop_oneof![
        (1_u64..2_000).prop_map(Duration::from_micros),
        (1_u64..3_000_000).prop_map(Duration::from_micros),
        (1_u64..200).prop_map(Duration::from_secs),
        (1_u64..400).prop_map(|days| DAY * days as u32),
    ];
    let time = prop_oneof![
        8 => Just(Time::Stands),
        8 => span.clone().prop_map(Time::On),
        1 => span.prop_map(Time::Back),
        4 => (0_u64..=1).prop_map(|early_us| Time::ToRetry { early_us }),
        1 => Just(Time::ToReset),
    ];
    let cost = prop_oneof![
        1 => Just(None),
        1 => Just(Some(0)),
        8 => Just(Some(1)),
        3 => (2_u32..=12).prop_map(Some),
        1 => (1_u32..400_000).prop_map(Some),
        1 => any::<u32>().prop_map(Some),
    ];
    let change = prop::option::weighted(0.06, (0..POLICIES, limits()));
    (time, change, 0_u8..2, [cost.clone(), cost.clone(), cost]).prop_map(
        |(time, change, key, costs)| Step {
            time,
            change,
            key,
            costs,
        },
    )
}

fn histories() -> impl Strategy<Value = History> {
    let limits = [limits(), limits(), limits()];
    (limits, prop::collection::vec(steps(), STEPS))
        .prop_map(|(limits, steps)| History { limits, steps })
}

/// The specification: a map of states, and the twins over it.
#[derive(Default)]
struct Twins(HashMap<(String, &'static str, u128), State>);

impl Twins {
    fn ask(&mut self, checks: &[Check<'_>], now: Micros) -> Decisions {
        let readings: Vec<_> = checks
            .iter()
            .map(|check| check.algorithm.read(self.state(check), now, check.cost))
            .collect();
        let charged = readings.iter().all(|reading| reading.fits);
        if charged {
            for check in checks {
                let (algorithm, cost) = (check.algorithm, check.cost);
                algorithm.charge(self.state(check), now, cost);
            }
        }
        let decide = checks.iter().zip(&readings);
        decide
            .map(|(check, reading)| check.algorithm.decide(reading, check.cost, charged))
            .collect()
    }

    fn state(&mut self, check: &Check<'_>) -> &mut State {
        let name = check.policy.name().to_owned();
        self.0
            .entry((name, check.algorithm.name(), check.subject.to_u128()))
            .or_insert_with(|| check.algorithm.untouched())
    }
}

/// The store driven by a clock, and that clock.
struct Timed {
    store: RedisStore,
    clock: ManualClock,
}

async fn answer(store: &impl Store, checks: &[Check<'_>]) -> Decisions {
    match store.ask(checks) {
        Answer::Ready(decisions) => decisions.unwrap(),
        Answer::Pending(decisions) => decisions.await.unwrap(),
    }
}

/// Runs a history; the first step on which not all agree is the error.
async fn run(history: History, redis: Arc<Timed>, number: u64) -> Result<(), String> {
    let clock = &redis.clock;
    clock.set(ManualClock::new().now());
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let mut twins = Twins::default();
    let policies = ["a", "b", "c"].map(PolicyId::new);
    let mut limits = history.limits;
    let mut last: Option<Decisions> = None;
    let mut latest = clock.now();
    let mut memory_remembers = true;
    for (position, step) in history.steps.iter().enumerate() {
        step.time.pass(clock, last.as_ref());
        if let Some((policy, limit)) = step.change {
            limits[policy] = limit;
        }
        let subject = Subject::from(&Key::all([Key::from(number), Key::from(step.key)]));
        let checks: Vec<_> = (0..POLICIES)
            .filter_map(|policy| {
                Some(Check {
                    policy: &policies[policy],
                    subject,
                    algorithm: Algorithm::try_from(&limits[policy]).unwrap(),
                    cost: step.costs[policy]?,
                    on_store_failure: FailureMode::Allow,
                })
            })
            .collect();
        if checks.is_empty() {
            continue;
        }
        let expected = twins.ask(&checks, clock.now());
        latest = latest.max(clock.now());
        // What has long expired, the memory store has forgotten: no clock brings it back.
        memory_remembers &= latest.saturating_sub(clock.now()) <= Micros::from(SECOND);
        for (name, found) in [
            ("memory", answer(&memory, &checks).await),
            ("redis", answer(&redis.store, &checks).await),
        ] {
            if found != expected && (name == "redis" || memory_remembers) {
                return Err(format!(
                    "step {position} at {:?}, limits {limits:?}:\n{step:?}\n\
                     twins: {expected:?}\n{name}: {found:?}",
                    clock.now()
                ));
            }
        }
        last = Some(expected);
    }
    Ok(())
}

impl Time {
    fn pass(self, clock: &ManualClock, last: Option<&Decisions>) {
        let longest = |wait: fn(&tower_throttle::Decision) -> Option<Duration>| {
            last.and_then(|decisions| decisions.iter().filter_map(wait).max())
                .unwrap_or_default()
        };
        match self {
            Self::Stands => {}
            Self::On(span) => clock.advance(span),
            Self::Back(span) => clock.step_back(span),
            Self::ToRetry { early_us } => {
                let wait = longest(tower_throttle::Decision::retry_after);
                clock.advance(wait.saturating_sub(Duration::from_micros(early_us)));
            }
            Self::ToReset => clock.advance(longest(|decision| Some(decision.reset_after()))),
        }
        // Within the years that the crate is exact in, and ahead of the server's clock.
        let (first, last) = (ManualClock::new().now(), Micros::new(5_900_000_000_000_000));
        clock.set(clock.now().clamp(first, last));
    }
}

#[test]
fn twins_memory_and_redis_decide_every_history_alike() {
    let wanted: u64 = std::env::var("HISTORIES").map_or(10_000, |histories| {
        histories.parse().expect("HISTORIES must be a number")
    });
    let server = support::redis::Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    const AT_ONCE: u64 = 32;
    let stores = runtime.block_on(try_join_all((0..AT_ONCE).map(|_| async {
        let clock = ManualClock::new();
        let store = server.builder().clock_for_tests(clock.clone());
        let store = store.connect().await?;
        Ok::<_, StoreError>(Arc::new(Timed { store, clock }))
    })));
    let stores = stores.unwrap();

    let mut runner = TestRunner::default();
    let mut done = 0;
    while done < wanted {
        let trees: Vec<_> = (0..AT_ONCE.min(wanted - done))
            .map(|_| histories().new_tree(&mut runner).unwrap())
            .collect();
        let runs = trees.iter().zip(&stores).zip(done..);
        let tasks = runs.map(|((tree, store), number)| {
            runtime.spawn(run(tree.current(), Arc::clone(store), number))
        });
        let found = runtime.block_on(try_join_all(tasks)).unwrap();
        done += found.len() as u64;
        let diverged = trees
            .into_iter()
            .zip(found)
            .find(|(_, found)| found.is_err());
        if let Some((tree, _)) = diverged {
            let mut number = u64::MAX;
            let smallest = shrink(tree, |history| {
                number -= 1;
                let run = run(history.clone(), Arc::clone(&stores[0]), number);
                runtime.block_on(run).err()
            });
            panic!("history {done} diverged:\n{smallest}");
        }
    }
    assert!(done >= wanted);
}

/// The smallest history that still diverges, and how.
fn shrink<T: ValueTree<Value = History>>(
    mut tree: T,
    mut diverges: impl FnMut(&History) -> Option<String>,
) -> String {
    let mut smallest = String::new();
    loop {
        let history = tree.current();
        let simpler = match diverges(&history) {
            Some(how) => {
                smallest = format!("{how}\n{history:#?}");
                tree.simplify()
            }
            None => tree.complicate(),
        };
        if !simpler {
            return smallest;
        }
    }
}
