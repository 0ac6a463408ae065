//! Every limit compared with the textbook script of GCRA.

use std::sync::Arc;

use tower_throttle::{DAY, Limit, MINUTE, SECOND, per_second};

use crate::load::{Keys, Load};
use crate::peers::Allowance;
use crate::peers::bare::{Bare, TEXTBOOK};
use crate::peers::ours::Ours;
use crate::redis_server::RedisServer;
use crate::round::{Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::Table;

const AT_ONCE: usize = 64;

const BARE_TEXTBOOK: &str = "the textbook script by a bare client";

/// Each with its own layout, so that none shares a key with another.
fn limits() -> [(&'static str, Limit); 7] {
    // More than one key is asked for.
    let many = 1_000_000;
    [
        ("gcra, 10 a second", Limit::gcra(10, SECOND).burst(many)),
        (
            "token_bucket, 3 a second",
            Limit::token_bucket(many, per_second(3)),
        ),
        ("leaky_bucket", Limit::leaky_bucket(many, per_second(10))),
        ("fixed_window", Limit::fixed_window(many, DAY)),
        ("sliding_window", Limit::sliding_window(many, DAY)),
        ("sliding_counter", Limit::sliding_counter(many, DAY)),
        ("sliding_log", Limit::sliding_log(many, MINUTE)),
    ]
}

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "Each limit",
        "RedisStore with one policy of each limit, in multiples of the textbook script of \
         GCRA by a bare client. Many warm keys, all allowed; 64 at once. At 3 a second a \
         permit takes no whole number of microseconds.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    for (name, _) in limits() {
        let ratios = |of: fn(&Round) -> f64| {
            let ratios = standings
                .iter()
                .map(move |all| all.ratio(of, name, BARE_TEXTBOOK));
            ratios.collect::<Vec<_>>()
        };
        let decisions = format!("{name}: decisions a second");
        table.row(decisions, None, ratios(Round::per_second));
        let cpu = format!("{name}: server CPU a decision");
        table.row(cpu, None, ratios(Round::server_cpu_us));
    }
    table
}

fn on(flavor: Flavor, redis: &RedisServer, effort: Effort) -> Standings {
    eprintln!("  {}", flavor.name());
    let runtime = flavor.runtime();
    let load = Load {
        at_once: AT_ONCE,
        keys: Keys::AnyOf(effort.keys),
        lasting: effort.lasting,
    };
    let textbook = Arc::new(runtime.block_on(Bare::script(redis, TEXTBOOK, Allowance::BRISK)));
    redis.warm_up(&runtime, &textbook, effort.keys);
    let mut contestants = vec![redis.contestant(BARE_TEXTBOOK, &runtime, &textbook, load)];
    for (name, limit) in limits() {
        let ours = Arc::new(runtime.block_on(Ours::limited(redis, limit)));
        redis.warm_up(&runtime, &ours, effort.keys);
        contestants.push(redis.contestant(name, &runtime, &ours, load));
    }
    take_turns(&contestants, effort)
}
