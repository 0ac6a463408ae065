//! What a server is asked, and many callers at once.

use std::sync::Arc;

use futures_util::future::join_all;
use tower_throttle::{DAY, Limit, Limiter, MINUTE, Policy, Prefetch, RedisStore};

use super::granted;
use support::bench::Bench;
use support::redis::Server;

/// None of their permits comes back while a test runs.
fn lasting(permits: u64) -> [(&'static str, Limit); 6] {
    let slow = 366 * DAY;
    [
        ("gcra", Limit::gcra(permits, slow)),
        ("fixed_window", Limit::fixed_window(permits, DAY)),
        ("sliding_log", Limit::sliding_log(permits, DAY)),
        ("sliding_window", Limit::sliding_window(permits, DAY)),
        ("sliding_counter", Limit::sliding_counter(permits, slow)),
        (
            "rates",
            Limit::fixed_window(permits, DAY).and(2 * permits, slow),
        ),
    ]
}

async fn limiter_over(store: RedisStore) -> Limiter {
    let policies = lasting(PERMITS).map(|(name, limit)| Policy::new(name, limit));
    let builder = Limiter::builder(store, policies).timeout(MINUTE);
    builder.build().unwrap()
}

const PERMITS: u64 = 1_000;
const KEYS: [&str; 2] = ["alice", "bob"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_are_granted_the_limit_and_never_more() {
    let server = Server::start();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = server.store().await;
        limiters.push(limiter_over(store.without_deny_cache()).await);
        limiters.push(limiter_over(server.store().await).await);
    }
    let limiters = Arc::new(limiters);
    for (name, _) in lasting(PERMITS) {
        let callers = (0..400_u64).map(|caller| {
            let limiters = Arc::clone(&limiters);
            tokio::spawn(async move {
                let limiter = &limiters[caller as usize % limiters.len()];
                let key = KEYS[caller as usize / 4 % 2];
                let mut had = 0;
                for _ in 0..3 {
                    // Some ask for the same, and share a batch.
                    had += match caller % 5 {
                        0 => u64::from(limiter.check(name, key).await.unwrap().is_allowed()),
                        more => part(limiter, name, key, 3 + more).await,
                    };
                }
                (key, had)
            })
        });
        let had = join_all(callers).await;
        let had: Vec<_> = had.into_iter().map(Result::unwrap).collect();
        for key in KEYS {
            let of_key = had.iter().filter(|(of, _)| *of == key);
            let sum: u64 = of_key.map(|(_, had)| had).sum();
            assert_eq!(sum, PERMITS, "{name} of {key}");
        }
    }
}

async fn part(limiter: &Limiter, policy: &str, key: &str, most: u64) -> u64 {
    match limiter.admit_up_to(policy, key, most).await {
        Ok(permit) => permit.granted(policy).unwrap(),
        Err(_) => 0,
    }
}

#[tokio::test]
async fn it_is_one_round_trip_whatever_is_left() {
    let bench = Bench::redis().await;
    let policies = lasting(10).map(|(name, limit)| Policy::new(name, limit));
    let limiter = bench.limiter(policies);
    for (name, _) in lasting(10) {
        assert_eq!(granted(&limiter, name, 4).await, 4, "{name}");
        let scripts = || bench.server().calls("evalsha") + bench.server().calls("eval");
        let before = scripts();
        assert_eq!(granted(&limiter, name, 20).await, 6, "{name}");
        assert_eq!(scripts() - before, 1, "{name}");
    }
}

#[tokio::test]
async fn that_none_is_left_is_remembered_for_any_number() {
    let bench = Bench::redis().await;
    let policies = lasting(10).map(|(name, limit)| Policy::new(name, limit));
    let limiter = bench.limiter(policies);
    for (name, _) in lasting(10) {
        assert_eq!(granted(&limiter, name, 20).await, 10, "{name}");
        for (most, is_remembered) in [(9, false), (20, true), (1, true)] {
            let denied = limiter.admit_up_to(name, "alice", most).await;
            let denied = denied.unwrap_err();
            let decision = denied.decision().unwrap();
            assert_eq!(decision.is_remembered(), is_remembered, "{name}: {most}");
        }
    }
}

#[tokio::test]
async fn permits_taken_in_advance_are_not_granted() {
    let bench = Bench::redis().await;
    let policy = Policy::new("tokens", Limit::fixed_window(1_000, DAY));
    let limiter = bench.limiter([policy.prefetch(Prefetch::new())]);
    for _ in 0..100 {
        let _ = limiter.check("tokens", "alice").await.unwrap();
    }
    let permit = limiter.admit_up_to("tokens", "alice", 5).await.unwrap();
    assert_eq!(permit.granted("tokens"), Some(5));
    assert!(!permit.verdict().get("tokens").unwrap().is_prefetched());
}
