//! The same random histories through the Rust algorithms, the memory store and the scripts on a
//! real server: every decision must be the same.
//!
//! `HISTORIES` sets how many histories are run, 10 000 by default.

mod final_takes;
mod histories;
mod replaced;
mod shadow;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use histories::{histories, shrink};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use support::asking::answer_of;
use support::history::{Course, History, receipts};
use support::redis::Server;
use tokio::runtime::{Builder, Runtime};
use tower_throttle::store::{Check, Decisions, Store};
use tower_throttle::store::{Reading, State, committed, decide, granted};
use tower_throttle::{
    Clock as _, Decision, HOUR, ManualClock, MemoryStore, Micros, Outcome, RedisStore, SECOND,
};

/// The specification: a map of states, and the algorithms over it.
#[derive(Default)]
struct Algorithms(HashMap<(u128, &'static str, u128), State>);

impl Algorithms {
    fn ask(&mut self, checks: &[Check<'_>], now: Micros) -> Decisions {
        let mut readings = self.read(checks, now);
        let granted = granted(checks.iter().map(Check::ask), &readings);
        let checks: Vec<_> = match granted {
            Some(granted) => checks.iter().map(|check| check.granting(granted)).collect(),
            None => checks.to_vec(),
        };
        if granted.is_some() {
            readings = self.read(&checks, now);
        }
        let asked = checks.iter().map(Check::ask);
        let committed = committed(asked.clone(), &readings);
        for ((check, reading), _) in checks
            .iter()
            .zip(&mut readings)
            .zip(committed)
            .filter(|((_, reading), committed)| *committed || !reading.fits)
        {
            let (algorithm, action) = (check.algorithm, &check.action);
            *reading = algorithm.commit(self.state(check), now, action, *reading);
        }
        decide(asked, &readings)
    }

    fn read(&mut self, checks: &[Check<'_>], now: Micros) -> Vec<Reading> {
        let each = checks.iter();
        each.map(|check| check.algorithm.read(self.state(check), now, &check.action))
            .collect()
    }

    fn state(&mut self, check: &Check<'_>) -> &mut State {
        let policy = check.policy.fingerprint();
        self.0
            .entry((policy, check.algorithm.name(), check.subject.to_u128()))
            .or_insert_with(|| check.algorithm.untouched())
    }
}

/// The store driven by a clock, and that clock.
struct Timed {
    store: RedisStore,
    clock: ManualClock,
}

impl Timed {
    async fn on(server: &Server) -> Self {
        let clock = ManualClock::new();
        let store = server.builder().clock_for_tests(clock.clone());
        // The scripts are under test, not the memory of denials.
        let store = store.connect().await.unwrap().without_deny_cache();
        Self { store, clock }
    }

    /// A single one, and the runtime and server to run it on.
    fn alone() -> (Runtime, Server, Self) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let server = Server::start();
        let timed = runtime.block_on(Self::on(&server));
        (runtime, server, timed)
    }
}

async fn answer(store: &impl Store, checks: &[Check<'_>]) -> Decisions {
    answer_of(store, checks).await.unwrap()
}

/// Two algorithms in one question.
type Pair = [&'static str; 2];

/// What the histories have reached.
#[derive(Default)]
struct Seen {
    pairs: HashSet<Pair>,
    situations: HashSet<&'static str>,
}

type Is = fn(&Decision) -> bool;

/// What can happen to checks in shadow.
const SITUATIONS: [&str; 5] = [
    "one in shadow is denied, the others are not",
    "one in shadow is banned, the others are not",
    "one in shadow fits, another one does not",
    "in shadow some fit and some do not",
    "of those in shadow and of the others some do not fit",
];

impl Seen {
    fn note(&mut self, checks: &[Check<'_>], decisions: &Decisions) {
        let names = || checks.iter().map(|check| check.algorithm.name());
        for (position, first) in names().enumerate() {
            let others = names().skip(position + 1);
            self.pairs.extend(others.map(|second| [first, second]));
        }
        let each = || checks.iter().zip(decisions.iter());
        let some = |is_shadow: bool, is: Is| {
            let mut each = each();
            each.any(|(check, decision)| check.is_shadow == is_shadow && is(decision))
        };
        let fits: Is = Decision::is_allowed;
        let denied: Is = |decision| !decision.is_allowed();
        let banned: Is = |decision| decision.outcome() == Outcome::Banned;
        let others_fit = some(false, fits) && !some(false, denied);
        let is_seen = [
            some(true, denied) && others_fit,
            some(true, banned) && others_fit,
            some(true, fits) && some(false, denied),
            some(true, fits) && some(true, denied),
            some(true, denied) && some(false, denied),
        ];
        let seen = SITUATIONS.into_iter().zip(is_seen).filter(|(_, is)| *is);
        self.situations.extend(seen.map(|(situation, _)| situation));
    }

    fn add(&mut self, other: Self) {
        self.pairs.extend(other.pairs);
        self.situations.extend(other.situations);
    }
}

/// Runs a history. The error is the first step on which not all agree.
async fn run(history: History, redis: Arc<Timed>, number: u64) -> Result<Seen, String> {
    let clock = &redis.clock;
    clock.set(ManualClock::new().now());
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let mut algorithms = Algorithms::default();
    let mut course = Course::of(&history);
    let mut last: Option<Decisions> = None;
    let mut latest = clock.now();
    let mut memory_remembers = true;
    let mut redis_remembers = true;
    let mut seen = Seen::default();
    for (position, step) in history.steps.iter().enumerate() {
        step.time.pass(clock, last.as_ref());
        course.change(step);
        let checks = course.checks(step, number);
        if checks.is_empty() {
            continue;
        }
        let expected = algorithms.ask(&checks, clock.now());
        latest = latest.max(clock.now());
        // The memory store has forgotten states that have long expired: no clock brings them back.
        let stepped_back = latest.saturating_sub(clock.now());
        memory_remembers &= stepped_back <= Micros::from(SECOND);
        // So has a key of several states.
        redis_remembers &= stepped_back <= Micros::from(HOUR) || !history.shares_keys();
        for (name, found) in [
            ("memory", answer(&memory, &checks).await),
            ("redis", answer(&redis.store, &checks).await),
        ] {
            let remembers = match name {
                "redis" => redis_remembers,
                _ => memory_remembers,
            };
            if found != expected && remembers {
                return Err(format!(
                    "step {position} at {:?}:\n{checks:#?}\nalgorithms: {expected:?}\n{name}: {found:?}",
                    clock.now()
                ));
            }
        }
        seen.note(&checks, &expected);
        let taken = receipts(&checks, &expected);
        course.answered(&taken);
        last = Some(expected);
    }
    Ok(seen)
}

fn wanted() -> u64 {
    std::env::var("HISTORIES").map_or(10_000, |histories| {
        histories.parse().expect("HISTORIES must be a number")
    })
}

#[test]
fn algorithms_memory_and_redis_decide_every_history_alike() {
    let wanted = wanted();
    let server = Server::start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    const AT_ONCE: u64 = 32;
    let stores = (0..AT_ONCE).map(|_| async { Arc::new(Timed::on(&server).await) });
    let stores = runtime.block_on(join_all(stores));

    let mut runner = TestRunner::default();
    let mut drawn = |many| -> Vec<_> {
        let tree = |_| histories().new_tree(&mut runner).unwrap();
        (0..AT_ONCE.min(many)).map(tree).collect()
    };
    let mut done = 0;
    let mut seen = Seen::default();
    let mut next = drawn(wanted);
    while done < wanted {
        let trees = next;
        let runs = trees.iter().zip(&stores).zip(done..);
        let tasks = runs.map(|((tree, store), number)| {
            runtime.spawn(run(tree.current(), Arc::clone(store), number))
        });
        let tasks: Vec<_> = tasks.collect();
        // Drawing them takes this thread a while, in which these run.
        next = drawn(wanted - done - trees.len() as u64);
        let found = runtime.block_on(try_join_all(tasks)).unwrap();
        done += found.len() as u64;
        let mut diverged = None;
        for (tree, found) in trees.into_iter().zip(found) {
            match found {
                Ok(more) => seen.add(more),
                Err(_) => diverged = Some(tree),
            }
        }
        if let Some(tree) = diverged {
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
                    together.iter().any(|pair| seen.pairs.contains(pair)),
                    "{first} and {second} were never asked together"
                );
            }
        }
        for situation in SITUATIONS {
            let is_seen = seen.situations.contains(situation);
            assert!(is_seen, "it never happened that {situation}");
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
