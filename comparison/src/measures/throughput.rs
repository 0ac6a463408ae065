//! Our store compared with bare clients that call a script that does nothing, the textbook's, and
//! our own.

use std::sync::Arc;

use crate::load::{Keys, Load};
use crate::peers::Allowance;
use crate::peers::bare::{Bare, EMPTY, TEXTBOOK};
use crate::peers::ours::Ours;
use crate::redis_server::RedisServer;
use crate::round::{Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const AT_ONCE: [usize; 4] = [1, 64, 512, 1_024];

const OURS: &str = "RedisStore";
const BARE_OURS: &str = "its script by a bare client";
const BARE_TEXTBOOK: &str = "the textbook script by a bare client";
const BARE_EMPTY: &str = "`return 1` by a bare client";

/// What is reported of each setting.
struct Told {
    what: &'static str,
    of: fn(&Round) -> f64,
    other: &'static str,
    target: fn(usize) -> Option<Target>,
}

const TOLD: [Told; 6] = [
    Told {
        what: "decisions a second, against the textbook script",
        of: Round::per_second,
        other: BARE_TEXTBOOK,
        target: |at_once| match at_once {
            64 => Some(Target::AtLeast(1.5)),
            512 => Some(Target::AtLeast(1.75)),
            _ => None,
        },
    },
    Told {
        what: "decisions a second, against its script by a bare client",
        of: Round::per_second,
        other: BARE_OURS,
        target: |_| None,
    },
    Told {
        what: "decisions a second, against `return 1`",
        of: Round::per_second,
        other: BARE_EMPTY,
        target: |_| None,
    },
    Told {
        what: "server CPU a decision, against the textbook script",
        of: Round::server_cpu_us,
        other: BARE_TEXTBOOK,
        target: |at_once| (at_once == 512).then_some(Target::AtMost(0.6)),
    },
    Told {
        what: "server CPU a decision, against `return 1`",
        of: Round::server_cpu_us,
        other: BARE_EMPTY,
        target: |_| None,
    },
    Told {
        what: "client CPU a decision, against its script by a bare client",
        of: Round::client_cpu_us,
        other: BARE_OURS,
        target: |_| None,
    },
];

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "RedisStore beside bare clients",
        "One GCRA policy of 100 a second; many keys, all of which owe something and are \
         allowed. A bare client pipelines one command for each decision over one multiplexed \
         connection of redis-rs, and does nothing else.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    for (setting, at_once) in AT_ONCE.into_iter().enumerate() {
        for told in &TOLD {
            let ratios = standings
                .iter()
                .map(|of_flavor| of_flavor[setting].ratio(told.of, OURS, told.other));
            table.row(
                format!("{at_once} at once: {}", told.what),
                (told.target)(at_once),
                ratios,
            );
        }
    }
    table
}

fn on(flavor: Flavor, redis: &RedisServer, effort: Effort) -> Vec<Standings> {
    let runtime = flavor.runtime();
    let allowance = Allowance::BRISK;
    let (ours, as_ours, textbook, empty) = runtime.block_on(async {
        (
            Arc::new(Ours::over(redis, allowance).await),
            Arc::new(Bare::as_ours(redis, allowance).await),
            Arc::new(Bare::script(redis, TEXTBOOK, allowance).await),
            Arc::new(Bare::script(redis, EMPTY, allowance).await),
        )
    });
    redis.warm_up(&runtime, &ours, effort.keys);
    redis.warm_up(&runtime, &as_ours, effort.keys);
    redis.warm_up(&runtime, &textbook, effort.keys);
    // So that no key is paid before the end, however slow the machine. The bare client asks our
    // script about the same keys.
    runtime.block_on(ours.owe(effort.keys, allowance.for_a_minute()));
    AT_ONCE
        .into_iter()
        .map(|at_once| {
            eprintln!("  {}, {at_once} at once", flavor.name());
            let load = Load {
                at_once,
                keys: Keys::AnyOf(effort.keys),
                lasting: effort.lasting,
            };
            let contestants = [
                redis.contestant(OURS, &runtime, &ours, load),
                redis.contestant(BARE_OURS, &runtime, &as_ours, load),
                redis.contestant(BARE_TEXTBOOK, &runtime, &textbook, load),
                redis.contestant(BARE_EMPTY, &runtime, &empty, load),
            ];
            take_turns(&contestants, effort)
        })
        .collect()
}
