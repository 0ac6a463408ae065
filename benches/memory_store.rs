//! The cost of a decision by the memory store, through `Limiter::check`.
//!
//! The `floor` of each group is one reading of the clock, which every limiter with microseconds needs.
//! `hash` is one BLAKE3 hash of a key. A thread hashes only keys that it has not hashed lately, so it
//! hashes nearly all of the 100 000 keys in turn.
//!
//! Also the cost of a remembered denial in front of another store.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use futures_util::FutureExt as _;
use tower_throttle::store::DenyCache;
use tower_throttle::{
    Clock as _, DAY, Limit, Limiter, MINUTE, MemoryStore, Policy, SECOND, SystemClock,
};

const KEYS: u64 = 100_000;

fn algorithms() -> [(&'static str, Limit); 3] {
    [
        // A rate at which a single key is hardly ever denied.
        ("gcra", Limit::gcra(100_000_000, SECOND)),
        ("fixed_window", Limit::fixed_window(1_000_000_000, MINUTE)),
        // The hot key fills its log and is then denied.
        ("sliding_log", Limit::sliding_log(1_000, MINUTE)),
    ]
}

fn limiter(limit: Limit) -> Limiter {
    Limiter::new(MemoryStore::new(), [Policy::new("api", limit)]).unwrap()
}

fn check(limiter: &Limiter, key: u64) {
    let answer = limiter.check("api", key).now_or_never();
    let _ = black_box(answer.expect("the memory store answers at once")).unwrap();
}

fn floor(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.bench_function("floor", |bencher| bencher.iter(|| SystemClock.now()));
    // As long as the encoding of a number.
    let key = [7; 25];
    group.bench_function("hash", |bencher| {
        bencher.iter(|| blake3::hash(black_box(&key)));
    });
}

fn hot_key(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hot_key");
    floor(&mut group);
    for (name, limit) in algorithms() {
        let limiter = limiter(limit);
        group.bench_function(name, |bencher| bencher.iter(|| check(&limiter, 7)));
    }
    let denying = limiter(Limit::gcra(1, MINUTE));
    group.bench_function("gcra_denied", |bencher| bencher.iter(|| check(&denying, 7)));
    for (name, limit) in [
        ("gcra_remembered_denial", Limit::gcra(1, DAY)),
        ("sliding_log_remembered_denial", Limit::sliding_log(1, DAY)),
    ] {
        // At the default age the store would be asked again.
        let cache = DenyCache::new(MemoryStore::new()).max_age(DAY);
        let denying = Limiter::new(cache, [Policy::new("api", limit)]).unwrap();
        (0..2).for_each(|_| check(&denying, 7));
        group.bench_function(name, |bencher| bencher.iter(|| check(&denying, 7)));
    }
}

fn many_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("100_000_keys");
    floor(&mut group);
    for (name, limit) in algorithms() {
        let limiter = limiter(limit);
        (0..KEYS).for_each(|key| check(&limiter, key));
        let mut key = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                key = (key + 1) % KEYS;
                check(&limiter, key);
            });
        });
    }
}

fn two_threads(criterion: &mut Criterion) {
    for (group, keys) in [
        ("two_threads_hot_key", 1),
        ("two_threads_100_000_keys", KEYS),
    ] {
        let mut group = criterion.benchmark_group(group);
        floor(&mut group);
        for (name, limit) in algorithms() {
            let limiter = limiter(limit);
            (0..keys).for_each(|key| check(&limiter, key));
            let ask = |first: u64, rounds: u64| {
                (first..first + rounds).for_each(|key| check(&limiter, key % keys));
            };
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|rounds| {
                    let (started, rounds) = (Instant::now(), rounds.div_ceil(2));
                    thread::scope(|scope| {
                        for first in [0, KEYS / 2] {
                            scope.spawn(move || ask(first, rounds));
                        }
                    });
                    started.elapsed()
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(SECOND);
    targets = hot_key, many_keys, two_threads
}
criterion_main!(benches);
