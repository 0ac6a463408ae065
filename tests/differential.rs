//! The same random histories through the Rust twins, the memory store and the scripts on a real
//! server: every decision must be the same.
//!
//! `HISTORIES` sets how many histories are run, 10 000 unless it is set.

mod support;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tower_throttle::algorithm::{
    Action, Algorithm, LeaseId, Patience, State, Take, committed, decide,
};
use tower_throttle::{
    Answer, Check, Clock, DAY, Decisions, FailureMode, Key, Limit, MINUTE, ManualClock,
    MemoryStore, Micros, Penalty, PolicyId, Rate, Receipt, RedisStore, SECOND, Store, StoreError,
    Subject,
};

const STEPS: usize = 50;
const POLICIES: usize = 3;

#[derive(Clone, Debug)]
struct History {
    limits: [Limit; POLICIES],
    /// The penalty that each policy has, if it has one.
    penalties: [Option<Penalty>; POLICIES],
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    time: Time,
    /// A policy's limit is replaced before the step.
    change: Option<(usize, Limit)>,
    key: u8,
    /// What is done with each policy that is asked.
    acts: [Option<Act>; POLICIES],
}

/// What is done with a policy's permits.
#[derive(Clone, Copy, Debug)]
enum Act {
    Take {
        cost: u32,
        patience: Patience,
        lease: Option<LeaseId>,
    },
    Charge(u32),
    Credit {
        permits: u32,
        /// Whether it is said when they were taken, which is when permits were taken last.
        known: bool,
    },
    /// Of what was taken last.
    Refund(u32),
    Cancel(u32),
    Reset,
    Renew(LeaseId),
    Release(LeaseId),
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

fn limits() -> BoxedStrategy<Limit> {
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
    let most = prop::option::of(prop_oneof![4 => 1_u32..=12, 1 => Just(1_000)]);
    let slices = prop_oneof![Just(1), Just(2), Just(3), Just(10), Just(60)];
    (0..11, permits, period, most, slices)
        .prop_map(|(algorithm, permits, period, most, slices)| {
            let rate = Rate::new(permits, period);
            let capacity = most.unwrap_or(permits);
            let limit = match algorithm {
                0 => Limit::fixed_window(permits, period),
                1 => Limit::fixed_window(permits, period).aligned(),
                2 => Limit::sliding_log(permits, period),
                3 => Limit::sliding_counter(permits, period),
                4 | 5 => Limit::sliding_window(permits, period).slices(slices),
                6 => Limit::token_bucket(capacity, rate),
                7 => Limit::leaky_bucket(capacity, rate),
                8 => Limit::leaky_bucket(capacity, rate).without_delay(),
                9 => Limit::concurrency(permits).lease(period),
                _ => Limit::gcra(permits, period).burst(capacity),
            };
            // A bucket that takes centuries to fill is no limit.
            Algorithm::try_from(&limit).map_or(Limit::gcra(permits, period), |_| limit)
        })
        .boxed()
}

fn penalties() -> impl Strategy<Value = Option<Penalty>> {
    let time = prop_oneof![
        Just(Duration::from_millis(1)),
        Just(SECOND),
        Just(MINUTE),
        Just(DAY),
    ];
    let penalty =
        (1_u32..4, time.clone(), time, 0_u32..4).prop_map(|(denials, within, ban, doublings)| {
            let penalty = Penalty::after(denials, within, ban);
            match doublings {
                0 => penalty,
                // Not a power of two, so that the last doubling is cut short.
                _ => penalty.doubling_up_to(ban * 3 * doublings),
            }
        });
    prop::option::weighted(0.3, penalty)
}

/// What takes permits, and what gives them back: no question does both.
fn acts() -> [BoxedStrategy<Act>; 2] {
    let cost = prop_oneof![
        1 => Just(0),
        8 => Just(1),
        3 => 2_u32..=12,
        1 => 1_u32..400_000,
        1 => any::<u32>(),
    ];
    let longest = prop_oneof![
        (0_u64..3_000_000).prop_map(Micros::new),
        Just(Micros::from(DAY)),
        Just(Micros::new(u64::MAX)),
    ];
    let patience = prop_oneof![
        3 => Just(Patience::None),
        1 => longest.clone().prop_map(Patience::UntilItFits),
        1 => longest.prop_map(Patience::UntilPaid),
    ];
    let id = (1_u64..8).prop_map(|id| LeaseId::from(NonZeroU64::new(id).unwrap()));
    let take = (
        cost.clone(),
        patience,
        prop::option::weighted(0.8, id.clone()),
    )
        .prop_map(|(cost, patience, lease)| Act::Take {
            cost,
            patience,
            lease,
        });
    let takes = prop_oneof![10 => take, 1 => cost.clone().prop_map(Act::Charge)];
    let gives_back = prop_oneof![
        2 => cost.clone().prop_map(Act::Charge),
        3 => (cost.clone(), any::<bool>())
            .prop_map(|(permits, known)| Act::Credit { permits, known }),
        2 => cost.clone().prop_map(Act::Refund),
        1 => cost.prop_map(Act::Cancel),
        1 => Just(Act::Reset),
        1 => id.clone().prop_map(Act::Renew),
        2 => id.prop_map(Act::Release),
    ];
    [takes.boxed(), gives_back.boxed()]
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
    let change = prop::option::weighted(0.06, (0..POLICIES, limits()));
    let [take, give_back] = acts().map(|act| {
        let act = prop::option::weighted(0.9, act);
        [act.clone(), act.clone(), act]
    });
    let acts = prop_oneof![2 => take, 1 => give_back];
    (time, change, 0_u8..2, acts).prop_map(|(time, change, key, acts)| Step {
        time,
        change,
        key,
        acts,
    })
}

fn histories() -> impl Strategy<Value = History> {
    (
        [limits(), limits(), limits()],
        [penalties(), penalties(), penalties()],
        prop::collection::vec(steps(), STEPS),
    )
        .prop_map(|(limits, penalties, steps)| History {
            limits,
            penalties,
            steps,
        })
}

/// The specification: a map of states, and the twins over it.
#[derive(Default)]
struct Twins(HashMap<(String, &'static str, u128), State>);

impl Twins {
    fn ask(&mut self, checks: &[Check<'_>], now: Micros) -> Decisions {
        let asked = checks.iter().map(|check| (&check.algorithm, &check.action));
        let mut readings: Vec<_> = checks
            .iter()
            .map(|check| check.algorithm.read(self.state(check), now, &check.action))
            .collect();
        let committed = committed(asked.clone(), &readings);
        for ((check, reading), _) in checks
            .iter()
            .zip(&mut readings)
            .zip(committed)
            .filter(|(_, committed)| *committed)
        {
            let (algorithm, action) = (check.algorithm, &check.action);
            *reading = algorithm.commit(self.state(check), now, action, *reading);
        }
        decide(asked, &readings)
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

/// Two algorithms that one question asks.
type Pair = [&'static str; 2];

/// Runs a history, and tells which algorithms were asked together; the first step on which not all
/// agree is the error.
async fn run(history: History, redis: Arc<Timed>, number: u64) -> Result<HashSet<Pair>, String> {
    let clock = &redis.clock;
    clock.set(ManualClock::new().now());
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let mut twins = Twins::default();
    let policies = ["a", "b", "c"].map(PolicyId::new);
    let mut limits = history.limits;
    let mut receipts = [Receipt::default(); POLICIES];
    let mut last: Option<Decisions> = None;
    let mut latest = clock.now();
    let mut memory_remembers = true;
    let mut pairs = HashSet::new();
    for (position, step) in history.steps.iter().enumerate() {
        step.time.pass(clock, last.as_ref());
        if let Some((policy, limit)) = step.change {
            limits[policy] = limit;
        }
        let subject = Subject::from(&Key::all([Key::from(number), Key::from(step.key)]));
        let mut checks = Vec::new();
        let mut takers = Vec::new();
        for (policy, act) in step.acts.iter().enumerate() {
            let Some(act) = act else { continue };
            let check = Check {
                policy: &policies[policy],
                subject,
                algorithm: Algorithm::try_from(&limits[policy]).unwrap(),
                action: act.action(receipts[policy]),
                is_shadow: false,
                on_store_failure: FailureMode::Allow,
            };
            if check.action.takes() > 0 {
                takers.push((policy, checks.len()));
            }
            checks.push(check);
            let guards = matches!(check.action, Action::Take(_) | Action::Reset);
            if let Some(penalty) = history.penalties[policy].as_ref().filter(|_| guards) {
                checks.push(Check {
                    algorithm: Algorithm::try_from(penalty).unwrap(),
                    ..check
                });
            }
        }
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
        for (policy, check) in takers {
            receipts[policy] = expected[check].receipt();
        }
        let names = || checks.iter().map(|check| check.algorithm.name());
        for (position, first) in names().enumerate() {
            pairs.extend(names().skip(position + 1).map(|second| [first, second]));
        }
        last = Some(expected);
    }
    Ok(pairs)
}

impl Act {
    fn action(self, last: Receipt) -> Action {
        match self {
            Self::Take {
                cost,
                patience,
                lease,
            } => Action::Take(Take {
                cost,
                patience,
                lease,
            }),
            Self::Charge(permits) => Action::Charge(permits),
            Self::Credit { permits, known } => Action::Credit {
                permits,
                taken_at: known.then(|| last.taken_at()),
            },
            Self::Refund(permits) => Action::Refund {
                permits,
                receipt: last,
            },
            Self::Cancel(permits) => Action::Cancel {
                permits,
                receipt: last,
            },
            Self::Reset => Action::Reset,
            Self::Renew(lease) => Action::Renew(lease),
            Self::Release(lease) => Action::Release(lease),
        }
    }
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
        let (first, last) = (ManualClock::new().now(), Micros::new(5_200_000_000_000_000));
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
        // It is the scripts that are put to the test.
        let store = store.connect().await?.without_deny_cache();
        Ok::<_, StoreError>(Arc::new(Timed { store, clock }))
    })));
    let stores = stores.unwrap();

    let mut runner = TestRunner::default();
    let mut done = 0;
    let mut pairs: HashSet<Pair> = HashSet::new();
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
        pairs.extend(found.iter().flatten().flatten());
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
    if wanted >= 1_000 {
        for first in ALGORITHMS {
            for second in ALGORITHMS.iter().copied().chain(["penalty"]) {
                let together = [[first, second], [second, first]];
                assert!(
                    together.iter().any(|pair| pairs.contains(pair)),
                    "{first} and {second} were never asked together"
                );
            }
        }
    }
}

const ALGORITHMS: [&str; 8] = [
    "gcra",
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_log",
    "sliding_window",
    "sliding_counter",
    "concurrency",
];

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
