//! One key that everybody asks about at once, and all are allowed: a tenant, or "everybody".

use std::sync::Arc;

use tower_throttle::{DAY, Limit, SECOND};

use crate::load::{Keys, Load};
use crate::peers::Allowance;
use crate::peers::bare::{Bare, TEXTBOOK};
use crate::peers::ours::Ours;
use crate::redis_server::RedisServer;
use crate::round::{Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const AT_ONCE: usize = 256;

const OURS: &str = "RedisStore";
const LEASED: &str = "RedisStore with leases of quota";
const WINDOW: &str = "RedisStore, a sliding window";
const LOG: &str = "RedisStore, a sliding log";
const BARE_OURS: &str = "its script by a bare client";
const BARE_TEXTBOOK: &str = "the textbook script by a bare client";

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "One hot key, all allowed",
        "256 callers at once ask RedisStore about one key. Bare clients make one script call \
         for each question.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    let each = |of: fn(&Round) -> f64, other: &str| -> Vec<_> {
        let ratios = standings.iter().map(|one| one.ratio(of, OURS, other));
        ratios.collect()
    };
    table.row(
        "decisions a second, against the textbook script",
        Target::AtLeast(4.0),
        each(Round::per_second, BARE_TEXTBOOK),
    );
    table.row(
        "decisions a second, against its script by a bare client",
        None,
        each(Round::per_second, BARE_OURS),
    );
    table.row(
        "server CPU a decision, against the textbook script",
        None,
        each(Round::server_cpu_us, BARE_TEXTBOOK),
    );
    for (limit, other) in [("a sliding window", WINDOW), ("a sliding log", LOG)] {
        let ratios = standings.iter();
        let ratios = ratios.map(|one| one.ratio(Round::per_second, other, BARE_TEXTBOOK));
        let what = format!("decisions a second by {limit}, against the textbook script");
        table.row(what, None, ratios.collect::<Vec<_>>());
    }
    let leased = standings.iter();
    let leased = leased.map(|one| one.ratio(Round::per_second, LEASED, BARE_OURS));
    table.row(
        "decisions a second with leases of quota, against its script by a bare client",
        Target::AtLeast(10.0),
        leased.collect::<Vec<_>>(),
    );
    table
}

fn on(flavor: Flavor, redis: &RedisServer, effort: Effort) -> Standings {
    let runtime = flavor.runtime();
    let allowance = Allowance::BOUNDLESS;
    let (ours, leased, window, log, as_ours, textbook) = runtime.block_on(async {
        (
            Arc::new(Ours::over(redis, allowance).await),
            Arc::new(Ours::leased(redis, allowance).await),
            Arc::new(Ours::limited(redis, Limit::sliding_window(1_000_000_000, DAY)).await),
            Arc::new(Ours::limited(redis, Limit::sliding_log(1_000_000, SECOND)).await),
            Arc::new(Bare::as_ours(redis, allowance).await),
            Arc::new(Bare::script(redis, TEXTBOOK, allowance).await),
        )
    });
    let load = Load {
        at_once: AT_ONCE,
        keys: Keys::One,
        lasting: effort.lasting,
    };
    eprintln!("  {}", flavor.name());
    let contestants = [
        redis.contestant(OURS, &runtime, &ours, load),
        redis.contestant(LEASED, &runtime, &leased, load),
        redis.contestant(WINDOW, &runtime, &window, load),
        redis.contestant(LOG, &runtime, &log, load),
        redis.contestant(BARE_OURS, &runtime, &as_ours, load),
        redis.contestant(BARE_TEXTBOOK, &runtime, &textbook, load),
    ];
    take_turns(&contestants, effort)
}
