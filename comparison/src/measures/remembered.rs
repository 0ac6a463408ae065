//! A remembered denial: no command to Redis, and no round trip.

use std::time::Duration;

use super::in_turns::round;
use crate::load::Decide;
use crate::peers::Allowance;
use crate::peers::governor::Governor;
use crate::peers::ours::Ours;
use crate::redis_server::RedisServer;
use crate::round::{Contestant, Effort, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const OURS: &str = "remembered denial";
const GOVERNOR: &str = "denial by governor";

/// One permit for so long that nothing is asked twice.
const ONCE: Allowance = Allowance {
    permits: 1,
    per: Duration::from_secs(86_400),
    burst: 1,
};

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "A remembered denial",
        "`Limiter::check` over RedisStore, about a subject that is known to be denied.",
        &["1 thread", "2 threads"],
    );
    let redis = RedisServer::start();
    let runtime = Flavor::TwoWorkers.runtime();
    // After a second, the next caller would ask again.
    let store = runtime.block_on(redis.store());
    let ours = Ours::with(store.deny_cache_max_age(ONCE.per), ONCE);
    let governor = Governor::new(ONCE);
    runtime.block_on(async { (ours.decide(0).await, ours.decide(0).await) });
    governor.check(&0);
    let by_ours = |_| ours.decide_at_once(0_u64);
    let by_governor = |_| governor.check(&0);
    let standings = [1, 2].map(|threads| {
        let contestants = [
            Contestant::new(OURS, || round(threads, 1, effort.lasting, &by_ours)),
            Contestant::new(GOVERNOR, || round(threads, 1, effort.lasting, &by_governor)),
        ];
        take_turns(&contestants, effort)
    });
    table.row(
        "nanoseconds, on the machine of this run",
        Target::AtMost(150.0),
        standings
            .iter()
            .map(|one| one.median(|round| round.client_cpu_us() * 1e3, OURS)),
    );
    table.row(
        "time, against a denial by governor",
        None,
        standings
            .iter()
            .map(|one| one.ratio(|round| 1.0 / round.per_second(), OURS, GOVERNOR)),
    );
    table
}
