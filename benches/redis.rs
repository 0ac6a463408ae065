//! A Redis decision beside its floor: a raw `EVALSHA` of `return 1` over the same kind of
//! connection, at concurrency 1 and 64. Compare ratios within one run only.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
use redis::IntoConnectionInfo;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use tokio::runtime::Runtime;
use tower_throttle::{Limit, Limiter, Policy, SECOND};

#[path = "../tests/support/redis.rs"]
#[allow(dead_code, unreachable_pub)]
mod server;

const KEYS: u64 = 100_000;

/// The time of `rounds` questions, so many under way at any time.
async fn timed<F: Future>(rounds: u64, at_once: u64, ask: impl Fn(u64) -> F) -> Duration {
    let ask = &ask;
    let started = Instant::now();
    join_all((0..at_once).map(|lane| async move {
        // Each goes on by itself, as requests do; the last rounds are shared out unevenly.
        let mut number = lane;
        while number < rounds {
            black_box(ask(number).await);
            number += at_once;
        }
    }))
    .await;
    started.elapsed()
}

async fn raw_connection(url: &str) -> (MultiplexedConnection, String) {
    // Without delay, as the store's own.
    let tcp = TcpSettings::default().set_nodelay(true);
    let server = url.into_connection_info().unwrap().set_tcp_settings(tcp);
    let client = redis::Client::open(server).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg("return 1");
    let digest = load.query_async(&mut connection).await.unwrap();
    (connection, digest)
}

fn redis_decision(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let server = server::Server::start();
    let (connection, digest) = runtime.block_on(raw_connection(&server.url()));
    let policies = [
        Policy::new("gcra", Limit::gcra(1_000_000, SECOND)),
        Policy::new("fixed_window", Limit::fixed_window(1_000_000, SECOND)),
        Policy::new("sliding_log", Limit::sliding_log(10, SECOND)),
    ];
    let store = runtime.block_on(server.store());
    let limiter = Limiter::builder(store)
        .policies(policies)
        .timeout(10 * SECOND);
    let limiter = limiter.build().unwrap();

    for at_once in [1, 64] {
        let mut group = criterion.benchmark_group(format!("redis, {at_once} at once"));
        group.bench_function("floor: EVALSHA of return 1", |bencher| {
            bencher.to_async(&runtime).iter_custom(|rounds| {
                timed(rounds, at_once, |number| {
                    let mut connection = connection.clone();
                    let mut command = redis::cmd("EVALSHA");
                    command.arg(&digest).arg(1).arg(number % KEYS);
                    async move { connection.send_packed_command(&command).await.unwrap() }
                })
            });
        });
        for policy in ["gcra", "fixed_window", "sliding_log"] {
            let id = BenchmarkId::new("decision", policy);
            group.bench_function(id, |bencher| {
                bencher.to_async(&runtime).iter_custom(|rounds| {
                    timed(rounds, at_once, |number| {
                        limiter.check(policy, number % KEYS)
                    })
                });
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = redis_decision
}
criterion_main!(benches);
