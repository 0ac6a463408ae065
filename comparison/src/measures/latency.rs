//! The time of one decision when nobody else asks. The contestants take turns after every single
//! question, so that they meet the same machine.

use std::time::{Duration, Instant};

use crate::load::Decide;
use crate::peers::Allowance;
use crate::peers::bare::{Bare, TEXTBOOK};
use crate::peers::deadpool::Deadpool;
use crate::peers::ours::Ours;
use crate::random::Random;
use crate::redis_server::RedisServer;
use crate::round::{Effort, median};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const OTHERS: [&str; 3] = [
    "PING by a bare client",
    "the textbook script by a bare client",
    "textbook script, a deadpool checkout each",
];

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "One decision at a time",
        "The median time of a decision of RedisStore, in multiples of others' in the same turns.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let medians = Flavor::ALL.map(|flavor| {
        eprintln!("  {}", flavor.name());
        let medians = flavor.runtime().block_on(on(&redis, effort));
        eprintln!("    us: RedisStore, {OTHERS:?}: {medians:.1?}");
        medians
    });
    for (position, other) in OTHERS.into_iter().enumerate() {
        let ratios = medians.map(|medians| Some(medians[0] / medians[position + 1]));
        let target = (position == 0).then_some(Target::AtMost(1.25));
        table.row(other, target, ratios);
    }
    table
}

/// The median microseconds: ours, and those of the others.
async fn on(redis: &RedisServer, effort: Effort) -> [f64; 4] {
    let allowance = Allowance::AMPLE;
    let ours = Ours::over(redis, allowance).await;
    let ping = Bare::ping(redis).await;
    let textbook = Bare::script(redis, TEXTBOOK, allowance).await;
    let deadpool = Deadpool::over(redis, allowance);
    let mut random = Random::new(0);
    let mut taken = [const { Vec::new() }; 4];
    let started = Instant::now();
    while started.elapsed() < 2 * effort.lasting * effort.rounds as u32 {
        let key = random.below(effort.keys);
        taken[0].push(time_of(&ours, key).await);
        taken[1].push(time_of(&ping, key).await);
        taken[2].push(time_of(&textbook, key).await);
        taken[3].push(time_of(&deadpool, key).await);
    }
    taken.map(|taken| median(taken.iter().map(Duration::as_secs_f64)) * 1e6)
}

async fn time_of(decider: &impl Decide, key: u64) -> Duration {
    let started = Instant::now();
    decider.decide(key).await;
    started.elapsed()
}
