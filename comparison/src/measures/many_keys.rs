//! 10 million keys compared with 1 000: what the number of keys costs.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::MemoryStore;

use super::in_turns::round;
use crate::load::{Decide, Keys, Load, warm_up};
use crate::peers::Allowance;
use crate::peers::bare::{Bare, TEXTBOOK};
use crate::peers::governor::Governor;
use crate::peers::ours::Ours;
use crate::redis_server::RedisServer;
use crate::round::{Contestant, Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const FEW: u64 = 1_000;
const MANY: u64 = 10_000_000;

const WITH_FEW: &str = "1 000 keys";
const WITH_MANY: &str = "10 million keys";

/// One permit an hour and many at once: no key is forgotten before the end.
const LONG: Allowance = Allowance {
    permits: 1,
    per: Duration::from_secs(3_600),
    burst: 60_000,
};

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "10 million keys",
        "The time of a decision with 10 million warm keys, drawn at random, in multiples of \
         the time with 1 000 keys; over Redis 64 at once, with what a bare client asks for \
         comparison.",
        &["1 thread"],
    );
    let target = Target::AtMost(1.3);
    let mut told = |name: &str, target, standings: &Standings| {
        let ratio = |of| [standings.ratio(of, WITH_MANY, WITH_FEW)];
        table.row(name, target, ratio(time));
        table.row("the same: server CPU", None, ratio(Round::server_cpu_us));
    };
    let ours = over_redis(effort, async |redis: &RedisServer| {
        Ours::over(redis, LONG).await
    });
    told("RedisStore", Some(target), &ours);
    let textbook = async |redis: &RedisServer| Bare::script(redis, TEXTBOOK, LONG).await;
    told("the textbook script", None, &over_redis(effort, textbook));
    let incrby = async |redis: &RedisServer| Bare::command(redis, "INCRBY", &["1"]).await;
    told(
        "INCRBY, of keys without an expiry",
        None,
        &over_redis(effort, incrby),
    );
    let ours = Ours::with(
        MemoryStore::builder().capacity(2 * MANY as usize).build(),
        LONG,
    );
    let of_ours = |key| ours.decide_at_once(key);
    table.row("MemoryStore", target, [in_memory(&of_ours, effort)]);
    let governor = Governor::new(LONG);
    let of_governor = |key| governor.check(&key);
    table.row("governor", None, [in_memory(&of_governor, effort)]);
    table
}

fn time(round: &Round) -> f64 {
    1.0 / round.per_second()
}

fn in_memory(decide: &(impl Fn(u64) -> bool + Sync), effort: Effort) -> Option<f64> {
    (0..MANY).for_each(|key| {
        decide(key);
    });
    let contestants = [
        Contestant::new(WITH_FEW, || round(1, FEW, effort.lasting, decide)),
        Contestant::new(WITH_MANY, || round(1, MANY, effort.lasting, decide)),
    ];
    take_turns(&contestants, effort).ratio(time, WITH_MANY, WITH_FEW)
}

fn over_redis<D: Decide>(effort: Effort, decider: impl AsyncFn(&RedisServer) -> D) -> Standings {
    let runtime = Flavor::CurrentThread.runtime();
    let (small, large) = (RedisServer::start(), RedisServer::start());
    let few = Arc::new(runtime.block_on(decider(&small)));
    let many = Arc::new(runtime.block_on(decider(&large)));
    runtime.block_on(warm_up(&few, FEW, Duration::MAX));
    runtime.block_on(warm_up(&many, MANY, Duration::MAX));
    let load = |keys| Load {
        at_once: 64,
        keys: Keys::AnyOf(keys),
        lasting: effort.lasting,
    };
    let contestants = [
        small.contestant(WITH_FEW, &runtime, &few, load(FEW)),
        large.contestant(WITH_MANY, &runtime, &many, load(MANY)),
    ];
    take_turns(&contestants, effort)
}
