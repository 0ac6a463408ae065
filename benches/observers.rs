//! The cost of observing a decision in memory, compared with an unobserved decision in the same run.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::FutureExt as _;
use metrics_exporter_prometheus::PrometheusBuilder;
use tower_throttle::{
    DAY, DecisionEvent, Limit, Limiter, LimiterBuilder, MemoryStore, Metrics, Policy, SECOND,
    TopDenied,
};

/// As many policies as a large service has, among which one is looked up.
const POLICIES: usize = 20;

fn limiter(limit: Limit, observed: impl Fn(Builder) -> Builder) -> Limiter {
    let policies = (0..POLICIES).map(|number| Policy::new(format!("policy-{number}"), limit));
    let limiter = Limiter::builder(MemoryStore::new(), policies);
    observed(limiter).build().expect("sound policies")
}

type Builder = LimiterBuilder<MemoryStore>;

fn check(limiter: &Limiter, policy: &str, user: u64) {
    let answer = limiter.check(policy, user).now_or_never();
    let _ = black_box(answer);
}

fn nobody(builder: Builder) -> Builder {
    builder
}

fn closure(builder: Builder) -> Builder {
    builder.on_decision(|event: &DecisionEvent<'_>| {
        black_box(event.result());
    })
}

fn metrics(builder: Builder) -> Builder {
    builder.observe(Metrics::new())
}

fn top(builder: Builder) -> Builder {
    builder.observe(TopDenied::new(100))
}

fn observers(criterion: &mut Criterion) {
    PrometheusBuilder::new()
        .install_recorder()
        .expect("the only recorder");
    let mut group = criterion.benchmark_group("observers");
    let ample = Limit::gcra(1_000_000_000, SECOND);
    let scarce = Limit::gcra(1, 300 * DAY);
    for (outcome, limit) in [("allowed", ample), ("denied", scarce)] {
        for (who, observed) in [
            ("nobody", nobody as fn(Builder) -> Builder),
            ("a closure", closure),
            ("metrics", metrics),
            ("top denied", top),
        ] {
            let limiter = limiter(limit, observed);
            group.bench_function(format!("{outcome}, told to {who}"), |b| {
                b.iter(|| check(&limiter, "policy-7", 7));
            });
        }
    }
    // Ever new subjects: each is allowed once and then denied, and evicts another one.
    for (who, observed) in [
        ("nobody", nobody as fn(Builder) -> Builder),
        ("top denied", top),
    ] {
        let limiter = limiter(scarce, observed);
        let mut user = 0;
        group.bench_function(format!("a flood of subjects, told to {who}"), |b| {
            b.iter(|| {
                user = (user + 1) % 100_000;
                check(&limiter, "policy-7", user);
            });
        });
    }
    // All threads deny the same subject: the store's lock is contended as the list's is.
    for (who, observed) in [
        ("nobody", nobody as fn(Builder) -> Builder),
        ("metrics", metrics),
        ("top denied", top),
    ] {
        let limiter = limiter(scarce, observed);
        group.bench_function(format!("denied on all threads, told to {who}"), |b| {
            b.iter_custom(|iterations| on_all_threads(&limiter, iterations));
        });
    }
}

fn on_all_threads(limiter: &Limiter, iterations: u64) -> Duration {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..iterations).for_each(|_| check(limiter, "policy-7", 7)));
        }
    });
    started.elapsed()
}

criterion_group!(benches, observers);
criterion_main!(benches);
