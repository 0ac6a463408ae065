//! Other limiters over the same Redis, with the same questions.

use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::load::{Decide, Keys, Load};
use crate::peers::actix_limitation::ActixLimitation;
use crate::peers::bare::Bare;
use crate::peers::deadpool::Deadpool;
use crate::peers::layered::Layered;
#[cfg(feature = "limitador")]
use crate::peers::limitador::Limitador;
use crate::peers::ours::Ours;
use crate::peers::{Allowance, tower_rate_limit_redis, tower_redis_cell};
use crate::redis_server::RedisServer;
use crate::round::{Contestant, Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const AT_ONCE: usize = 64;

const OURS: &str = "RedisStore";
const DEADPOOL: &str = "textbook script, a deadpool checkout each";
const TOWER_RATE_LIMIT_REDIS: &str = "tower-rate-limit-redis";
const LIMITADOR: &str = "limitador";
const ACTIX_LIMITATION: &str = "actix-limitation";
const TOWER_REDIS_CELL: &str = "tower-redis-cell (native module)";
const MODULE: &str = "native module, by a bare client";

/// The least that our decisions a second should be, in multiples of theirs.
const TARGETS: [(&str, Option<f64>); 6] = [
    (DEADPOOL, Some(4.0)),
    (TOWER_RATE_LIMIT_REDIS, Some(2.0)),
    (LIMITADOR, Some(2.0)),
    (ACTIX_LIMITATION, Some(2.0)),
    (TOWER_REDIS_CELL, Some(0.9)),
    (MODULE, Some(0.9)),
];

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "RedisStore beside other limiters",
        "Decisions a second of RedisStore, in multiples of theirs; 64 at once. *Allowed*: many warm \
         keys. *Denied*: one key that may 100 times a second, and is asked without a pause.",
        &[
            "allowed, current_thread",
            "allowed, two workers",
            "denied, current_thread",
            "denied, two workers",
        ],
    );
    let redis = RedisServer::start();
    if !redis.has_module {
        eprintln!("  without the module of redis-cell: REDIS_CELL is not set");
    }
    let standings: Vec<_> = [
        (Allowance::AMPLE, Keys::AnyOf(effort.keys)),
        (Allowance::SCARCE, Keys::One),
    ]
    .into_iter()
    .flat_map(|(allowance, keys)| {
        let redis = &redis;
        Flavor::ALL.map(|flavor| on(flavor, redis, allowance, keys, effort))
    })
    .collect();
    for (other, target) in TARGETS {
        if standings[0].names().any(|name| name == other) {
            let ratios = standings
                .iter()
                .map(|standings| standings.ratio(Round::per_second, OURS, other));
            table.row(other, target.map(Target::AtLeast), ratios);
        }
    }
    table
}

fn on(
    flavor: Flavor,
    redis: &RedisServer,
    allowance: Allowance,
    keys: Keys,
    effort: Effort,
) -> Standings {
    let runtime = flavor.runtime();
    let load = Load {
        at_once: AT_ONCE,
        keys,
        lasting: effort.lasting,
    };
    let field = Field {
        redis,
        runtime: &runtime,
        load,
    };
    eprintln!("  {}", flavor.name());
    take_turns(&contestants(&field, allowance), effort)
}

fn contestants<'a>(field: &Field<'a>, allowance: Allowance) -> Vec<Contestant<'a>> {
    let (redis, runtime) = (field.redis, field.runtime);
    // Some of them make their connections where a runtime is.
    let _inside = runtime.enter();
    let mut contestants = vec![
        field.enter(OURS, runtime.block_on(Ours::over(redis, allowance))),
        field.enter(DEADPOOL, Deadpool::over(redis, allowance)),
        field.enter(
            TOWER_RATE_LIMIT_REDIS,
            Layered::by(runtime.block_on(tower_rate_limit_redis::layer(redis, allowance))),
        ),
        field.enter(ACTIX_LIMITATION, ActixLimitation::over(redis, allowance)),
        #[cfg(feature = "limitador")]
        field.enter(
            LIMITADOR,
            runtime.block_on(Limitador::over(redis, allowance)),
        ),
    ];
    if redis.has_module {
        let layer = runtime.block_on(tower_redis_cell::layer(redis, allowance));
        contestants.push(field.enter(TOWER_REDIS_CELL, Layered::by(layer)));
        let bare = runtime.block_on(Bare::module(redis, allowance));
        contestants.push(field.enter(MODULE, bare));
    }
    contestants
}

/// Where they meet.
struct Field<'a> {
    redis: &'a RedisServer,
    runtime: &'a Runtime,
    load: Load,
}

impl<'a> Field<'a> {
    fn enter(&self, name: &'static str, decider: impl Decide) -> Contestant<'a> {
        let decider = Arc::new(decider);
        if let Keys::AnyOf(keys) = self.load.keys {
            self.redis.warm_up(self.runtime, &decider, keys);
        }
        self.redis
            .contestant(name, self.runtime, &decider, self.load)
    }
}
