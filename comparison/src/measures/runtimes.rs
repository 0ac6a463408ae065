//! One store that is asked from two runtimes, as by a service that has one for each thread. A
//! connection belongs to one of them.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::load::{Decide, Keys, Load};
use crate::peers::Allowance;
use crate::peers::ours::Ours;
use crate::random::Random;
use crate::redis_server::RedisServer;
use crate::round::{Contestant, Effort, Figure, Round, Standings, percentile, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const AT_ONCE: usize = 64;

const ALONE: &str = "alone, one runtime";
const ALONE_FROM_SECOND: &str = "alone, from the second runtime";
const ALL: &str = "64 at once, one runtime";
const ALL_FROM_SECOND: &str = "64 at once, from the second runtime";
const ALL_FROM_BOTH: &str = "64 at once, half of them from each runtime";

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "Two runtimes",
        "One RedisStore that is asked from two runtimes, each of which is driven, in multiples of \
         one that is asked only from the runtime where it was made. One GCRA policy; many warm \
         keys, all allowed.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    let told: [(&str, &str, Target, Figure); 3] = [
        (ALONE_FROM_SECOND, ALONE, Target::AtMost(1.2), |round| {
            round.p50
        }),
        (
            ALL_FROM_SECOND,
            ALL,
            Target::AtLeast(0.9),
            Round::per_second,
        ),
        (ALL_FROM_BOTH, ALL, Target::AtLeast(0.9), Round::per_second),
    ];
    for (two, one, target, of) in told {
        let what = match two {
            ALONE_FROM_SECOND => "p50 of a decision",
            _ => "decisions a second",
        };
        let ratios = standings.iter().map(|all| all.ratio(of, two, one));
        table.row(format!("{two}: {what}"), target, ratios.collect::<Vec<_>>());
    }
    table
}

fn on(flavor: Flavor, redis: &RedisServer, effort: Effort) -> Standings {
    eprintln!("  {}", flavor.name());
    let (first, second) = (Driven::new(flavor), Driven::new(flavor));
    let allowance = Allowance::AMPLE;
    let (of_one, of_two) = first.runtime.block_on(async {
        (
            Arc::new(Ours::over(redis, allowance).await),
            Arc::new(Ours::over(redis, allowance).await),
        )
    });
    redis.warm_up(&first.runtime, &of_one, effort.keys);
    // From now on this one is asked from both.
    redis.warm_up(&first.runtime, &of_two, effort.keys);
    redis.warm_up(&second.runtime, &of_two, effort.keys);
    let load = Load {
        at_once: AT_ONCE,
        keys: Keys::AnyOf(effort.keys),
        lasting: effort.lasting,
    };
    let contestants = [
        Contestant::new(ALONE, || redis.round(|| first.ask_alone(&of_one, load))),
        Contestant::new(ALONE_FROM_SECOND, || {
            redis.round(|| second.ask_alone(&of_two, load))
        }),
        redis.contestant(ALL, &first.runtime, &of_one, load),
        redis.contestant(ALL_FROM_SECOND, &second.runtime, &of_two, load),
        Contestant::new(ALL_FROM_BOTH, || {
            redis.round(|| ask_from_both([&first, &second], &of_two, load))
        }),
    ];
    take_turns(&contestants, effort)
}

fn ask_from_both(runtimes: [&Driven; 2], ours: &Arc<Ours>, load: Load) -> Round {
    let at_once = load.at_once / runtimes.len();
    let load = Load { at_once, ..load };
    let asking = runtimes.iter().enumerate().map(|(position, driven)| {
        let ours = Arc::clone(ours);
        let first_seed = (position * at_once) as u64;
        let asking = async move { load.on_from(first_seed, &ours).await };
        driven.runtime.spawn(asking)
    });
    let counts = runtimes[0].runtime.block_on(join_all(asking));
    let mut all = Round::default();
    for count in counts {
        let count = count.expect("decisions");
        all.decisions += count.decisions;
        all.allowed += count.allowed;
    }
    all
}

/// A runtime that is driven by a thread of its own, whoever else waits for it.
struct Driven {
    runtime: Arc<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Driven {
    fn new(flavor: Flavor) -> Self {
        let runtime = Arc::new(flavor.runtime());
        let (stop, stopped) = oneshot::channel();
        let driving = Arc::clone(&runtime);
        let thread = thread::spawn(move || {
            // Ends when the sender is dropped.
            let _ = driving.block_on(stopped);
        });
        Self {
            runtime,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// One question after the other, each of them timed.
    fn ask_alone(&self, ours: &Arc<Ours>, load: Load) -> Round {
        let ours = Arc::clone(ours);
        // A task of the runtime, and not of this thread.
        let asking = self.runtime.spawn(async move {
            let (mut round, mut random) = (Round::default(), Random::new(0));
            let (mut times, started) = (Vec::new(), Instant::now());
            while started.elapsed() < load.lasting {
                let key = load.keys.draw(&mut random);
                let asked = Instant::now();
                round.allowed += u64::from(ours.decide(key).await);
                times.push(asked.elapsed().as_secs_f64());
                round.decisions += 1;
            }
            round.p50 = percentile(&mut times, 0.5);
            round.p90 = percentile(&mut times, 0.9);
            round
        });
        self.runtime.block_on(asking).expect("decisions")
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
