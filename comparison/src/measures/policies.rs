//! Several policies on one subject: all of them are one question.

use std::sync::Arc;

use tower_throttle::{Everybody, Header, Limit, MINUTE, Mode, Policy, SECOND};

use crate::load::{Decide, Keys, Load};
use crate::peers::Allowance;
use crate::peers::layered::{self, WHO};
use crate::peers::ours::policy;
use crate::redis_server::RedisServer;
use crate::round::{Effort, Figure, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};

const AT_ONCE: usize = 64;

const ONE: &str = "one policy";
const FIVE: &str = "five policies";
const GROUP: &str = "five policies of a group";
const BESIDE: &str = "two rates, and one for everybody";
const SHADOW: &str = "one policy in shadow";
const GROUP_AND_SHADOW: &str = "five policies of a group, one of them in shadow";

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "Several policies",
        "The layer over RedisStore, without headers, in multiples of the same with one GCRA \
         policy by a header: with five policies by the same header, in a group or not; with a \
         limit of two rates beside a policy for everybody; and with a policy in shadow. Many \
         warm subjects, all allowed; 64 at once.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = RedisServer::start();
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    let told: [(&str, Figure); 3] = [
        ("time a request", |round| 1.0 / round.per_second()),
        ("server CPU a request", Round::server_cpu_us),
        ("client CPU a request", Round::client_cpu_us),
    ];
    let targets = [
        (GROUP, Some(Target::AtMost(1.6))),
        (GROUP_AND_SHADOW, None),
        (FIVE, None),
        (BESIDE, None),
        (SHADOW, None),
    ];
    for (policies, target) in targets {
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
    let layers = [
        (ONE, vec![by_user("alone")]),
        (FIVE, five().collect()),
        (GROUP, of_a_group().collect()),
        (GROUP_AND_SHADOW, of_a_group_and_shadow()),
        (BESIDE, vec![two_rates(), for_everybody()]),
        (SHADOW, vec![by_user("in-shadow").mode(Mode::Shadow)]),
    ];
    let layers = layers.map(|(name, policies)| {
        let layer = runtime.block_on(layered(redis, name, policies));
        let layer = Arc::new(layer);
        redis.warm_up(&runtime, &layer, effort.keys);
        (name, layer)
    });
    let load = Load {
        at_once: AT_ONCE,
        keys: Keys::AnyOf(effort.keys),
        lasting: effort.lasting,
    };
    eprintln!("  {}", flavor.name());
    let contestants = layers
        .each_ref()
        .map(|(name, layer)| redis.contestant(name, &runtime, layer, load));
    take_turns(&contestants, effort)
}

fn by_user(name: &str) -> Policy {
    policy(name, Allowance::AMPLE).by(Header::new(WHO))
}

fn five() -> impl Iterator<Item = Policy> {
    let names = ["first", "second", "third", "fourth", "fifth"];
    names.into_iter().map(by_user)
}

fn of_a_group() -> impl Iterator<Item = Policy> {
    five().map(|policy| policy.group("client"))
}

fn of_a_group_and_shadow() -> Vec<Policy> {
    let policies = of_a_group().enumerate();
    let policies = policies.map(|(position, policy)| match position {
        0 => policy.mode(Mode::Shadow),
        _ => policy,
    });
    policies.collect()
}

fn two_rates() -> Policy {
    let Allowance { permits, burst, .. } = Allowance::AMPLE;
    let limit = Limit::gcra(permits.into(), SECOND).burst(burst.into());
    let limit = limit.and((60 * permits).into(), MINUTE).burst(burst.into());
    Policy::new("two-rates", limit).by(Header::new(WHO))
}

fn for_everybody() -> Policy {
    policy("everybody", Allowance::BOUNDLESS).by(Everybody)
}

async fn layered(redis: &RedisServer, name: &str, policies: Vec<Policy>) -> impl Decide {
    // All have names of their own.
    let store = redis
        .store_with_prefix(&name.replace([' ', ','], "-"))
        .await;
    layered::ours(store, policies)
}
