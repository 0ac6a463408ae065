//! A hot policy with and without prefetch over one Redis: all requests have the same subject, and are
//! allowed. Compare ratios within one run only.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tower_throttle::{Limit, Limiter, Policy, Prefetch, SECOND};

use support::redis as server;

/// The time of `rounds` decisions, with this many in flight at a time, on both workers.
async fn timed(limiter: &Limiter, policy: &'static str, rounds: u64, at_once: u64) -> Duration {
    let started = Instant::now();
    let tasks = (0..at_once).map(|task| {
        let limiter = limiter.clone();
        // The last rounds are divided unevenly.
        let rounds = rounds / at_once + u64::from(task < rounds % at_once);
        tokio::spawn(async move {
            for round in 0..rounds {
                let decision = limiter.check(policy, 7_u64).await.unwrap();
                assert!(black_box(decision).is_allowed());
                // A server yields between requests; a task that never waits would block others.
                if round % 64 == 63 {
                    tokio::task::yield_now().await;
                }
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    started.elapsed()
}

fn hot_policy(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let server = server::Server::start();
    let limit = Limit::gcra(10_000_000, SECOND);
    let policies = [
        Policy::new("prefetched", limit).prefetch(Prefetch::new()),
        Policy::new("each asked", limit),
    ];
    let store = runtime.block_on(server.store());
    let limiter = Limiter::builder(store, policies);
    let limiter = limiter.timeout(10 * SECOND).build().unwrap();

    for at_once in [64, 256] {
        let mut group = criterion.benchmark_group(format!("hot policy, {at_once} at once"));
        group.throughput(Throughput::Elements(1));
        for policy in ["each asked", "prefetched"] {
            group.bench_function(policy, |bencher| {
                bencher
                    .to_async(&runtime)
                    .iter_custom(|rounds| timed(&limiter, policy, rounds, at_once));
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
    targets = hot_policy
}
criterion_main!(benches);
