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
const GROUP: &str = "five policies of a group";

/// What is told of a round.
type Told = fn(&Round) -> f64;

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "Five policies on one subject",
        "The layer over RedisStore, without headers; five GCRA policies against one, of the same \
         header, each for itself and all of a group; many warm subjects, all allowed, 64 at once.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    let told: [(&str, Told); 3] = [
        ("time a request", |round| 1.0 / round.per_second()),
        ("server CPU a request", Round::server_cpu_us),
        ("client CPU a request", Round::client_cpu_us),
    ];
    for (policies, target) in [(GROUP, Some(Target::AtMost(1.6))), (FIVE, None)] {
        for (what, of) in told {
            let ratios = standings.iter().map(|one| one.ratio(of, policies, ONE));
            let target = target.filter(|_| what == "time a request");
            table.row(
                format!("{policies}: {what}"),
                target,
                ratios.collect::<Vec<_>>(),
            );
        }
    }
    table
}

fn on(flavor: Flavor, redis: &RedisServer, effort: Effort) -> Standings {
    let runtime = flavor.runtime();
    let names = ["first", "second", "third", "fourth", "fifth"];
    let one = Arc::new(runtime.block_on(layered(redis, &["alone"], None)));
    let five = Arc::new(runtime.block_on(layered(redis, &names, None)));
    let group = Arc::new(runtime.block_on(layered(redis, &names, Some("client"))));
    redis.warm_up(&runtime, &one, effort.keys);
    redis.warm_up(&runtime, &five, effort.keys);
    redis.warm_up(&runtime, &group, effort.keys);
    let load = Load {
        at_once: AT_ONCE,
        keys: Keys::AnyOf(effort.keys),
        lasting: effort.lasting,
    };
    eprintln!("  {}", flavor.name());
    let contestants = [
        redis.contestant(ONE, &runtime, &one, load),
        redis.contestant(FIVE, &runtime, &five, load),
        redis.contestant(GROUP, &runtime, &group, load),
    ];
    take_turns(&contestants, effort)
}

async fn layered(redis: &RedisServer, names: &[&str], group: Option<&str>) -> impl Decide {
    let policies = names.iter().map(|name| {
        let policy = policy(name, Allowance::AMPLE).by(Header::new(WHO));
        match group {
            Some(group) => policy.group(group),
            None => policy,
        }
    });
    let limiter = Limiter::builder(redis.store().await)
        .policies(policies)
        .timeout(MINUTE);
    let limiter = limiter.build().expect("sound policies");
    Layered::by(RateLimitLayer::new(limiter).headers(QuotaHeaders::NONE))
}
