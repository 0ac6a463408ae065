//! Several policies on one subject: all of them are one question.

use std::sync::Arc;

use tower_throttle::{Header, Limiter, MINUTE, QuotaHeaders, RateLimitLayer};

use crate::load::{Decide, Keys, Load};
use crate::peers::Allowance;
use crate::peers::layered::{Layered, WHO};
use crate::peers::ours::policy;
use crate::redis_server::RedisServer;
use crate::round::{Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const AT_ONCE: usize = 64;

const ONE: &str = "one policy";
const FIVE: &str = "five policies";

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "Five policies on one subject",
        "The layer over RedisStore, without headers; five GCRA policies against one, of the same \
         header; many warm subjects, all allowed, 64 at once.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    let each = |of: fn(&Round) -> f64| -> Vec<_> {
        let ratios = standings.iter().map(|one| one.ratio(of, FIVE, ONE));
        ratios.collect()
    };
    let target = Target::AtMost(1.6);
    table.row(
        "time a request",
        target,
        each(|round| 1.0 / round.per_second()),
    );
    table.row("server CPU a request", target, each(Round::server_cpu_us));
    table.row("client CPU a request", None, each(Round::client_cpu_us));
    table
}

fn on(flavor: Flavor, redis: &RedisServer, effort: Effort) -> Standings {
    let runtime = flavor.runtime();
    let one = Arc::new(runtime.block_on(layered(redis, &["alone"])));
    let names = ["first", "second", "third", "fourth", "fifth"];
    let five = Arc::new(runtime.block_on(layered(redis, &names)));
    redis.warm_up(&runtime, &one, effort.keys);
    redis.warm_up(&runtime, &five, effort.keys);
    let load = Load {
        at_once: AT_ONCE,
        keys: Keys::AnyOf(effort.keys),
        lasting: effort.lasting,
    };
    eprintln!("  {}", flavor.name());
    let contestants = [
        redis.contestant(ONE, &runtime, &one, load),
        redis.contestant(FIVE, &runtime, &five, load),
    ];
    take_turns(&contestants, effort)
}

async fn layered(redis: &RedisServer, names: &[&str]) -> impl Decide {
    let policies = names
        .iter()
        .map(|name| policy(name, Allowance::AMPLE).by(Header::new(WHO)));
    let limiter = Limiter::builder(redis.store().await)
        .policies(policies)
        .timeout(MINUTE);
    let limiter = limiter.build().expect("sound policies");
    Layered::by(RateLimitLayer::new(limiter).headers(QuotaHeaders::NONE))
}
