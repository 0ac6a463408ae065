//! The time of one decision when nobody else asks. The contestants take turns after every single
//! question, so that they meet the same machine.

use std::sync::Arc;
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
        "The median time of one decision of RedisStore, in multiples of the other's in the \
         same turns.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let medians = Flavor::ALL.map(|flavor| {
        eprintln!("  {}", flavor.name());
        let medians = on(flavor, &redis, effort);
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
fn on(flavor: Flavor, redis: &RedisServer, effort: Effort) -> [f64; 4] {
    let (runtime, allowance) = (flavor.runtime(), Allowance::BRISK);
    let (ours, ping, textbook, deadpool) = runtime.block_on(async {
        (
            Arc::new(Ours::over(redis, allowance).await),
            Bare::ping(redis).await,
            Arc::new(Bare::script(redis, TEXTBOOK, allowance).await),
            Arc::new(Deadpool::over(redis, allowance)),
        )
    });
    redis.warm_up(&runtime, &ours, effort.keys);
    redis.warm_up(&runtime, &textbook, effort.keys);
    redis.warm_up(&runtime, &deadpool, effort.keys);
    let mut random = Random::new(0);
    let mut taken = [const { Vec::new() }; 4];
    runtime.block_on(async {
        // So that no key is paid before the end.
        ours.owe(effort.keys, allowance.for_a_minute()).await;
        let started = Instant::now();
        while started.elapsed() < 2 * effort.lasting * effort.rounds as u32 {
            let key = random.below(effort.keys);
            for next in shuffled(&mut random) {
                taken[next].push(match next {
                    0 => time_of(&*ours, key).await,
                    1 => time_of(&ping, key).await,
                    2 => time_of(&*textbook, key).await,
                    _ => time_of(&*deadpool, key).await,
                });
            }
        }
    });
    taken.map(|taken| median(taken.iter().map(Duration::as_secs_f64)) * 1e6)
}

/// An order in which each of the four may come after any other.
fn shuffled(random: &mut Random) -> [usize; 4] {
    let mut order = [0, 1, 2, 3];
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

async fn time_of(decider: &impl Decide, key: u64) -> Duration {
    let started = Instant::now();
    decider.decide(key).await;
    started.elapsed()
}
