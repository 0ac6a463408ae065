//! What an attack by one subject costs Redis.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::load::{Keys, Load};
use crate::peers::Allowance;
use crate::peers::ours::Ours;
use crate::redis_server::RedisServer;
use crate::round::Effort;
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

/// A hundred a minute, as an API may have it.
const ALLOWANCE: Allowance = Allowance {
    permits: 100,
    per: Duration::from_secs(60),
    burst: 20,
};

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "An attack by one subject",
        "64 callers at once ask about one subject with 100 a minute. Counted are the script \
         calls that Redis sees each second after the burst. This is not a ratio, and it holds \
         for any machine.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let calls = Flavor::ALL.map(|flavor| {
        let runtime = flavor.runtime();
        let ours = Arc::new(runtime.block_on(Ours::over(&redis, ALLOWANCE)));
        let load = |lasting| Load {
            at_once: 64,
            keys: Keys::One,
            lasting,
        };
        runtime.block_on(load(Duration::from_millis(200)).on(&ours));
        let (before, started) = (redis.scripts_run(), Instant::now());
        let asked = runtime.block_on(load(10 * effort.lasting).on(&ours));
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "  {}: {:.0} k/s asked, {} allowed",
            flavor.name(),
            asked.decisions as f64 / seconds / 1e3,
            asked.allowed
        );
        Some((redis.scripts_run() - before) as f64 / seconds)
    });
    table.row("script calls a second", Target::AtMost(10.0), calls);
    table
}
