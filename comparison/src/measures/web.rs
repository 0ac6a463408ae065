//! A whole axum server, over sockets, under load.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use tower_throttle::store::Store;
use tower_throttle::{Header, Limiter, MINUTE, MemoryStore, RateLimitLayer};

use crate::load::Keys;
use crate::peers::layered::WHO;
use crate::peers::ours::policy;
use crate::peers::{Allowance, tower_governor, tower_rate_limit_redis};
use crate::redis_server::RedisServer;
use crate::round::{Contestant, Effort, Round, Standings, take_turns};
use crate::runtimes::Flavor;
use crate::table::{Table, Target};
use crate::web::{Server, round};

const BARE: &str = "bare";
const LAYER: &str = "layer on MemoryStore";
const TOWER_GOVERNOR: &str = "tower_governor";
const BARE_429: &str = "bare, answering 429";
const LAYER_429: &str = "layer on MemoryStore, denying";
const TOWER_GOVERNOR_429: &str = "tower_governor, denying";
const REDIS: &str = "layer on RedisStore";
const TOWER_RATE_LIMIT_REDIS: &str = "tower-rate-limit-redis";
const REDIS_OVER_FEW: &str = "layer on RedisStore, 8 connections";
const TOWER_RATE_LIMIT_REDIS_OVER_FEW: &str = "tower-rate-limit-redis, 8 connections";

/// Kept alive by the clients.
const CONNECTIONS: u64 = 64;
const FEW_CONNECTIONS: u64 = 8;

/// One permit for so long that everything else is denied.
const ONCE: Allowance = Allowance {
    permits: 1,
    per: Duration::from_secs(86_400),
    burst: 1,
};

/// One contestant against the other, and the least ratio of requests a second.
const TOLD: [(&str, &str, Option<f64>); 7] = [
    (LAYER, BARE, Some(0.93)),
    (TOWER_GOVERNOR, BARE, None),
    (LAYER_429, BARE_429, Some(0.85)),
    (TOWER_GOVERNOR_429, BARE_429, None),
    (REDIS, TOWER_RATE_LIMIT_REDIS, Some(1.5)),
    (REDIS, BARE, None),
    (REDIS_OVER_FEW, TOWER_RATE_LIMIT_REDIS_OVER_FEW, None),
];

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "An axum server under load",
        "One server in multiples of another. The handler says hello; there are 64 \
         connections, kept alive, unless the row says otherwise; one GCRA policy by a header; \
         quota headers on; denials are 429 with problem+json.",
        &Flavor::ALL.map(Flavor::name),
    );
    let redis = Arc::new(RedisServer::start());
    let standings = Flavor::ALL.map(|flavor| on(flavor, &redis, effort));
    for (one, other, target) in TOLD {
        let ratios = |of: fn(&Round) -> f64| {
            let ratios = standings.iter().map(move |all| all.ratio(of, one, other));
            ratios.collect::<Vec<_>>()
        };
        table.row(
            format!("{one}, against {other}: requests a second"),
            target.map(Target::AtLeast),
            ratios(Round::per_second),
        );
        table.row(
            "the same: server's CPU a request",
            None,
            ratios(Round::client_cpu_us),
        );
    }
    table
}

fn on(flavor: Flavor, redis: &Arc<RedisServer>, effort: Effort) -> Standings {
    eprintln!("  {}", flavor.name());
    let ample = Allowance::AMPLE;
    let any = Keys::AnyOf(effort.keys);
    let serve = |name, keys, router: Router| {
        let server = Server::start(flavor, async move || router);
        contestant(name, CONNECTIONS, keys, server, effort)
    };
    let with_redis = |name, connections, server| contestant(name, connections, any, server, effort);
    let over_redis = |name, connections| {
        let redis = Arc::clone(redis);
        let router = async move || hello().layer(layer(redis.store().await, ample));
        with_redis(name, connections, Server::start(flavor, router))
    };
    let by_other = |name, connections| {
        let redis = Arc::clone(redis);
        let router =
            async move || hello().layer(tower_rate_limit_redis::layer(&redis, ample).await);
        with_redis(name, connections, Server::start(flavor, router))
    };
    let contestants = [
        serve(BARE, any, hello()),
        serve(LAYER, any, hello().layer(layer(MemoryStore::new(), ample))),
        serve(
            TOWER_GOVERNOR,
            any,
            hello().layer(tower_governor::layer(ample)),
        ),
        serve(BARE_429, Keys::One, refusing()),
        serve(
            LAYER_429,
            Keys::One,
            hello().layer(layer(MemoryStore::new(), ONCE)),
        ),
        serve(
            TOWER_GOVERNOR_429,
            Keys::One,
            hello().layer(tower_governor::layer(ONCE)),
        ),
        over_redis(REDIS, CONNECTIONS),
        by_other(TOWER_RATE_LIMIT_REDIS, CONNECTIONS),
        over_redis(REDIS_OVER_FEW, FEW_CONNECTIONS),
        by_other(TOWER_RATE_LIMIT_REDIS_OVER_FEW, FEW_CONNECTIONS),
    ];
    take_turns(&contestants, effort)
}

fn contestant(
    name: &'static str,
    connections: u64,
    keys: Keys,
    server: Server,
    effort: Effort,
) -> Contestant<'static> {
    // So that no key is new.
    round(server.address(), connections, keys, 2 * effort.lasting);
    Contestant::new(name, move || {
        round(server.address(), connections, keys, effort.lasting)
    })
}

fn hello() -> Router {
    Router::new().route("/", get(async || "Hello, World!"))
}

fn refusing() -> Router {
    let refusal = (StatusCode::TOO_MANY_REQUESTS, "Too many requests");
    Router::new().route("/", get(async move || refusal))
}

fn layer(store: impl Store, allowance: Allowance) -> RateLimitLayer {
    let policy = policy("client", allowance).by(Header::new(WHO));
    let limiter = Limiter::builder(store, [policy]).timeout(MINUTE);
    RateLimitLayer::new(limiter.build().expect("a sound policy"))
}
