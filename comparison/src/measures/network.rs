//! Questions that arrive at a fixed rate, from a service that is some way from its Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::delaying_proxy::DelayingProxy;
use crate::load::Keys;
use crate::open_loop::OpenLoop;
use crate::peers::Allowance;
use crate::peers::bare::{Bare, EMPTY};
use crate::peers::ours::Ours;
use crate::redis_server::RedisServer;
use crate::round::{Contestant, Effort, Figure, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const OURS: &str = "RedisStore";
const BARE: &str = "`return 1` by a bare client";

const ALL_RATES: &[u32] = &[500, 1_500, 3_000, 6_000];
/// The delays each way, and how many questions arrive each second.
const NETWORKS: [(Duration, &[u32]); 5] = [
    (Duration::from_micros(500), &[6_000]),
    (Duration::from_millis(1), &[500, 1_500, 3_000]),
    (Duration::from_millis(3), ALL_RATES),
    (Duration::from_millis(15), &[500, 1_500, 3_000]),
    (Duration::from_millis(30), &[500, 1_500]),
];
/// Where all of them are about one key.
const HOT: (Duration, u32) = (Duration::from_millis(3), 3_000);

struct Cell {
    each_way: Duration,
    per_second: u32,
    is_hot: bool,
}

impl Cell {
    fn name(&self) -> String {
        let milliseconds = self.each_way.as_secs_f64() * 1e3;
        let rate = self.per_second;
        let hot = if self.is_hot { ", one hot key" } else { "" };
        format!("{milliseconds} ms each way, {rate} a second{hot}")
    }

    fn measure(&self, runtime: &Runtime, redis: &RedisServer, effort: Effort) -> Standings {
        let network = DelayingProxy::before(redis.socket(), self.each_way);
        let (keys, allowance) = match self.is_hot {
            true => (Keys::One, Allowance::BOUNDLESS),
            false => (Keys::AnyOf(effort.keys), Allowance::AMPLE),
        };
        let (ours, bare) = runtime.block_on(async {
            (
                Arc::new(Ours::at(&network.url(), allowance).await),
                Arc::new(Bare::script_at(&network.url(), EMPTY, allowance).await),
            )
        });
        let arrivals = OpenLoop {
            per_second: self.per_second,
            keys,
            // Four round trips.
            lead_in: 8 * self.each_way,
            lasting: 2 * effort.lasting,
        };
        let contestants = [
            Contestant::new(OURS, || {
                redis.round(|| runtime.block_on(arrivals.on(&ours)))
            }),
            Contestant::new(BARE, || {
                redis.round(|| runtime.block_on(arrivals.on(&bare)))
            }),
        ];
        take_turns(&contestants, effort)
    }
}

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "Behind a network",
        "Questions arrive at a fixed rate, whether or not earlier ones were answered, and a proxy \
         delays what passes between client and Redis. The time of one decision of RedisStore, with \
         one GCRA policy, in multiples of that of `return 1` by a bare client, which makes one \
         script call for each question: the median, and what a tenth exceeds. Many keys, unless \
         the row says otherwise.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let cells = cells(effort);
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, &cells, effort));
    for (position, cell) in cells.iter().enumerate() {
        let percentiles: [(&str, f64, Figure); 2] = [
            ("p50", 1.1, |round| round.p50),
            ("p90", 1.2, |round| round.p90),
        ];
        for (percentile, target, of) in percentiles {
            let ratios = standings
                .iter()
                .map(|all| all[position].ratio(of, OURS, BARE));
            table.row(
                format!("{}: {percentile}", cell.name()),
                Target::AtMost(target),
                ratios.collect::<Vec<_>>(),
            );
        }
    }
    let failed = standings.iter().map(|all| {
        let failed = all.iter().map(Standings::failed).sum::<u64>();
        Some(failed as f64)
    });
    table.row("decisions that failed", Target::AtMost(0.0), failed);
    table
}

fn cells(effort: Effort) -> Vec<Cell> {
    let (networks, hot) = match effort.each_way {
        None => (NETWORKS.to_vec(), HOT.0),
        Some(each_way) => (vec![(each_way, ALL_RATES)], each_way),
    };
    let mut cells = Vec::new();
    for (each_way, rates) in networks {
        cells.extend(rates.iter().map(|per_second| Cell {
            each_way,
            per_second: *per_second,
            is_hot: false,
        }));
    }
    cells.push(Cell {
        each_way: hot,
        per_second: HOT.1,
        is_hot: true,
    });
    cells
}

fn on(flavor: Flavor, redis: &RedisServer, cells: &[Cell], effort: Effort) -> Vec<Standings> {
    let runtime = flavor.runtime();
    cells
        .iter()
        .map(|cell| {
            eprintln!("  {}, {}", flavor.name(), cell.name());
            cell.measure(&runtime, redis, effort)
        })
        .collect()
}
