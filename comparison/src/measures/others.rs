//! Other limiters over the same Redis, with the same questions.

use std::sync::Arc;

use tokio::runtime::Runtime;
use tower_throttle::Header;

use crate::load::{Decide, Keys, Load};
use crate::peers::actix_limitation::ActixLimitation;
use crate::peers::bare::Bare;
use crate::peers::deadpool::Deadpool;
use crate::peers::layered::{self, Layered, WHO};
#[cfg(feature = "limitador")]
use crate::peers::limitador::Limitador;
use crate::peers::ours::{ByName, Ours, policy};
use crate::peers::{Allowance, tower_rate_limit_redis, tower_redis_cell};
use crate::redis_server::RedisServer;
use crate::round::{Contestant, Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const AT_ONCE: usize = 64;

const OURS: &str = "RedisStore";
const OURS_ASKING: &str = "RedisStore, asking always";
const LAYER: &str = "layer over RedisStore";
const LAYER_ASKING: &str = "layer over RedisStore, asking always";
const DEADPOOL: &str = "textbook script, a deadpool checkout each";
const TOWER_RATE_LIMIT_REDIS: &str = "tower-rate-limit-redis";
const LIMITADOR: &str = "limitador";
const ACTIX_LIMITATION: &str = "actix-limitation";
const TOWER_REDIS_CELL: &str = "tower-redis-cell (native module)";
const MODULE: &str = "native module, by a bare client";

/// Our contestants that do the same as others: as usual, and asking always.
const ALONE: [&str; 2] = [OURS, OURS_ASKING];
/// The same as layers, which take requests.
const AS_LAYER: [&str; 2] = [LAYER, LAYER_ASKING];

/// Each of the others, our contestants that do the same, and the least number of our decisions a
/// second as a multiple of theirs.
const OTHERS: [(&str, [&str; 2], f64); 6] = [
    (DEADPOOL, ALONE, 4.0),
    (TOWER_RATE_LIMIT_REDIS, AS_LAYER, 2.0),
    (LIMITADOR, ALONE, 2.0),
    (ACTIX_LIMITATION, ALONE, 2.0),
    (TOWER_REDIS_CELL, AS_LAYER, 0.9),
    (MODULE, ALONE, 0.9),
];

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "RedisStore beside other limiters",
        "Decisions a second of RedisStore in multiples of the other's; keys are texts; 64 at \
         once. A layer is compared with our layer, without headers. *Allowed*: many warm \
         keys. *Denied*: one key with 100 a second is asked about without a pause, and \
         RedisStore denies it from memory most of the time; *asking always*: the same without \
         the memory of denials.",
        &[
            "allowed, current_thread",
            "allowed, two workers",
            "denied, current_thread",
            "denied, two workers",
            "denied asking always, current_thread",
            "denied asking always, two workers",
        ],
    );
    let redis = RedisServer::start();
    if !redis.has_module {
        eprintln!("  without the module of redis-cell: REDIS_CELL is not set");
    }
    let [allowed, denied] = [
        (Allowance::AMPLE, Keys::AnyOf(effort.keys)),
        (Allowance::SCARCE, Keys::One),
    ]
    .map(|(allowance, keys)| Flavor::ALL.map(|flavor| on(flavor, &redis, allowance, keys, effort)));
    for (name, [ours, ours_asking], target) in OTHERS {
        if allowed[0].names().any(|known| known == name) {
            let ratios = |standings: &[Standings; 2], ours| {
                let ratio = |standings: &Standings| standings.ratio(Round::per_second, ours, name);
                standings.each_ref().map(ratio)
            };
            let told = [
                ratios(&allowed, ours),
                ratios(&denied, ours),
                ratios(&denied, ours_asking),
            ];
            table.row(name, Target::AtLeast(target), told.concat());
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
    // Some of them need a runtime to make their connections.
    let _inside = runtime.enter();
    let by_user = || [policy("layer", allowance).by(Header::new(WHO))];
    let mut contestants = vec![
        field.enter(OURS, ByName(runtime.block_on(Ours::over(redis, allowance)))),
        field.enter(
            LAYER,
            layered::ours(runtime.block_on(redis.store()), by_user()),
        ),
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
    if let Keys::One = field.load.keys {
        let alone = runtime.block_on(Ours::asking_always(redis, allowance));
        contestants.push(field.enter(OURS_ASKING, ByName(alone)));
        let store = runtime.block_on(redis.store()).without_deny_cache();
        contestants.push(field.enter(LAYER_ASKING, layered::ours(store, by_user())));
    }
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
