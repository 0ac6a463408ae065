//! A Redis decision compared with its floor: a raw `EVALSHA` of `return 1` over the same kind of
//! connection. Compare ratios within one run only. `comparison/` compares revisions and other crates.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
use redis::IntoConnectionInfo;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use tokio::runtime::Runtime;
use tower_throttle::{Limit, Limiter, Policy, SECOND};

use support::redis as server;

const KEYS: u64 = 100_000;

/// The policies of the benches.
struct Asked {
    runtime: Runtime,
    limiter: Limiter,
    floor: MultiplexedConnection,
    digest: String,
    _server: server::Server,
}

impl Asked {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = server::Server::start();
        let (floor, digest) = runtime.block_on(floor(&server.url()));
        let store = runtime.block_on(server.store());
        let limiter = Limiter::builder(store, policies()).timeout(10 * SECOND);
        Self {
            limiter: limiter.build().unwrap(),
            runtime,
            floor,
            digest,
            _server: server,
        }
    }

    async fn decide(&self, policy: &str, key: u64) {
        let decision = self.limiter.check(policy, key).await.unwrap();
        assert_eq!(decision.store_failure(), None);
        let _ = black_box(decision);
    }

    async fn touch_floor(&self, key: u64) {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest).arg(1).arg(key);
        let mut connection = self.floor.clone();
        black_box(connection.send_packed_command(&command).await.unwrap());
    }
}

/// At these rates a key stays in Redis once it was used, so no question is about a new key.
fn policies() -> [Policy; 4] {
    [
        Policy::new("gcra", Limit::gcra(1, SECOND).burst(1_000_000)),
        Policy::new("fixed_window", Limit::fixed_window(1_000_000, 60 * SECOND)),
        Policy::new("sliding_log", Limit::sliding_log(10, SECOND)),
        Policy::new("hot", Limit::gcra(1_000_000, SECOND).burst(100_000_000)),
    ]
}

/// A bare connection, and the digest of a script that does nothing.
async fn floor(url: &str) -> (MultiplexedConnection, String) {
    // With TCP_NODELAY, as the store's own connections.
    let tcp = TcpSettings::default().set_nodelay(true);
    let server = url.into_connection_info().unwrap().set_tcp_settings(tcp);
    let client = redis::Client::open(server).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg("return 1");
    let digest = load.query_async(&mut connection).await.unwrap();
    (connection, digest)
}

/// The time of `rounds` questions, with this many in flight at a time.
async fn timed<F: Future>(rounds: u64, at_once: u64, ask: impl Fn(u64) -> F) -> Duration {
    let ask = &ask;
    let started = Instant::now();
    join_all((0..at_once).map(|first| async move {
        // Each continues independently, like requests; the last rounds are divided unevenly.
        let mut number = first;
        while number < rounds {
            ask(number).await;
            number += at_once;
        }
    }))
    .await;
    started.elapsed()
}

fn many_keys(criterion: &mut Criterion) {
    let asked = Asked::new();
    for at_once in [1, 64, 1_024] {
        let mut group = criterion.benchmark_group(format!("redis, {at_once} at once"));
        group.bench_function("floor: EVALSHA of return 1", |bencher| {
            bencher.to_async(&asked.runtime).iter_custom(|rounds| {
                timed(rounds, at_once, |number| asked.touch_floor(number % KEYS))
            });
        });
        for policy in ["gcra", "fixed_window", "sliding_log"] {
            group.bench_function(policy, |bencher| {
                bencher.to_async(&asked.runtime).iter_custom(|rounds| {
                    timed(rounds, at_once, |number| {
                        asked.decide(policy, number % KEYS)
                    })
                });
            });
        }
        group.finish();
    }
}

fn hot_key(criterion: &mut Criterion) {
    const AT_ONCE: u64 = 256;
    let asked = Asked::new();
    let mut group = criterion.benchmark_group(format!("redis, one hot key, {AT_ONCE} at once"));
    group.bench_function("floor: EVALSHA of return 1", |bencher| {
        let asking = |rounds| timed(rounds, AT_ONCE, |_| asked.touch_floor(0));
        bencher.to_async(&asked.runtime).iter_custom(asking);
    });
    group.bench_function("gcra", |bencher| {
        let asking = |rounds| timed(rounds, AT_ONCE, |_| asked.decide("hot", 0));
        bencher.to_async(&asked.runtime).iter_custom(asking);
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = many_keys, hot_key
}
criterion_main!(benches);
