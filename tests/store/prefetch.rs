//! Prefetch over a real Redis: what reaches it, and what a fleet hands out.
#![cfg(feature = "redis")]

use std::time::Duration;

use futures_util::future::join_all;
use support::cluster::Cluster;
use support::redis::Server;
use support::until::until;
use support::virtual_time::timed;
use tokio::runtime::Builder;
use tower_throttle::store::Action;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    ConfigError, DAY, HOUR, Limit, Limiter, MINUTE, MemoryStore, Penalty, Policy, Prefetch,
    RedisStore, ResponseHead, SECOND, per_second,
};

async fn process(server: &Server, policy: Policy) -> Limiter {
    over(server.store().await, policy)
}

fn over(store: RedisStore, policy: Policy) -> Limiter {
    let builder = Limiter::builder(store, [policy]);
    // On a busy machine an answer may be late.
    builder.timeout(MINUTE).build().unwrap()
}

fn prefetching(limit: Limit) -> Policy {
    Policy::new("hot", limit).prefetch(Prefetch::new())
}

/// Asks this often from this many tasks. Returns how many were allowed.
async fn storm(limiter: &Limiter, tasks: u64, times: u64) -> u64 {
    let tasks = (0..tasks).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..times {
                let decision = limiter.check("hot", "everybody").await.unwrap();
                assert_eq!(decision.store_failure(), None);
                allowed += u64::from(decision.is_allowed());
                // An answer from memory never waits, so other tasks must be given a turn.
                tokio::task::yield_now().await;
            }
            allowed
        })
    });
    let allowed = join_all(tasks).await.into_iter().map(Result::unwrap);
    allowed.sum()
}

/// How much this process may have, without taking any.
async fn remaining(limiter: &Limiter) -> u64 {
    limiter.peek("hot", "everybody").await.unwrap().remaining()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_policy_takes_few_commands() {
    let server = Server::start();
    for limit in [
        Limit::gcra(1_000_000, SECOND),
        Limit::token_bucket(1_000_000, per_second(1_000_000)),
        Limit::fixed_window(1_000_000, HOUR),
    ] {
        let limiter = process(&server, prefetching(limit)).await;
        storm(&limiter, 16, 500).await;
        let before = server.calls("evalsha");
        assert_eq!(storm(&limiter, 16, 5_000).await, 80_000, "{limit:?}");
        let commands = server.calls("evalsha") - before;
        assert!(commands < 8_000, "{limit:?}: {commands} commands");
        let _ = limiter.reset("hot", "everybody").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_hand_out_exactly_the_limit_together() {
    let server = Server::start();
    for limit in [
        Limit::gcra(1_000, 366 * DAY).burst(20_000),
        Limit::fixed_window(20_000, 366 * DAY),
    ] {
        let mut processes = Vec::new();
        for _ in 0..3 {
            processes.push(process(&server, prefetching(limit)).await);
        }
        let storms = processes.iter().map(|process| storm(process, 8, 1_500));
        let allowed: u64 = join_all(storms).await.into_iter().sum();
        assert!(allowed <= 20_000, "{limit:?}: {allowed} were handed out");
        let keeps_a_debt = limit != Limit::fixed_window(20_000, 366 * DAY);
        // What was left of batches is there again for others. The exception is a limit that keeps a
        // debt, if others have taken something later: then it may stay away for ever.
        let wait = if keeps_a_debt { 2 } else { 20 } * SECOND;
        let give_up = tokio::time::Instant::now() + wait;
        let somebody = process(&server, Policy::new("hot", limit)).await;
        let left = async || {
            let look = somebody.peek("hot", "everybody").await.unwrap();
            look.remaining()
        };
        while left().await != 20_000 - allowed && tokio::time::Instant::now() < give_up {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut rest = 0;
        while somebody
            .check("hot", "everybody")
            .await
            .unwrap()
            .is_allowed()
        {
            rest += 1;
        }
        let all = allowed + rest;
        assert!(all <= 20_000, "{limit:?}: {all} were handed out");
        assert!(all >= 14_000, "{limit:?}: only {all} were handed out");
        if !keeps_a_debt {
            assert_eq!(all, 20_000);
        }
        let _ = processes[0].reset("hot", "everybody").await.unwrap();
    }
}

/// Batches are taken from the subject's node, and what is left goes back there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_a_limit_is_handed_out_exactly_in_few_commands() {
    let cluster = Cluster::start();
    let commands = || -> u64 {
        let masters = cluster.masters.iter();
        masters.map(|master| master.calls("evalsha")).sum()
    };
    let limit = Limit::fixed_window(20_000, 366 * DAY);
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(&cluster.url()).await.unwrap();
        processes.push(over(store, prefetching(limit)));
    }
    let before = commands();
    let storms = processes.iter().map(|process| storm(process, 8, 1_000));
    let allowed: u64 = join_all(storms).await.into_iter().sum();
    assert_eq!(allowed, 16_000);
    let commands = commands() - before;
    assert!(commands < 8_000, "{commands} commands");
    // They give back what they hold.
    drop(processes);
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let other = over(store, Policy::new("hot", limit));
    let give_up = tokio::time::Instant::now() + 20 * SECOND;
    let remaining = || async { other.peek("hot", "everybody").await.unwrap().remaining() };
    while remaining().await != 4_000 && tokio::time::Instant::now() < give_up {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(remaining().await, 4_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_counts_what_the_process_holds() {
    let server = Server::start();
    let limit = Limit::fixed_window(100_000, DAY);
    let prefetch = Prefetch::new().max_age(MINUTE);
    let limiter = process(&server, Policy::new("hot", limit).prefetch(prefetch)).await;
    let other = process(&server, Policy::new("hot", limit)).await;
    let give_up = tokio::time::Instant::now() + 20 * SECOND;
    let mut left = 100_000;
    loop {
        left -= storm(&limiter, 8, 20).await;
        // A batch in flight is not held yet.
        let is_held = remaining(&other).await < left;
        if is_held && remaining(&limiter).await == left {
            break;
        }
        assert!(tokio::time::Instant::now() < give_up, "{left}");
    }
}

/// The group has its own key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_moved_into_a_group_prefetches_from_it() {
    let server = Server::start();
    // Within a test, no permit comes back.
    let limit = Limit::gcra(1, 8 * HOUR).burst(100_000);
    let grouped = || prefetching(limit).group("clients");
    let limiter = process(&server, prefetching(limit)).await;
    let alone = process(&server, Policy::new("hot", limit)).await;
    let of_group = process(&server, Policy::new("hot", limit).group("clients")).await;
    storm(&limiter, 8, 200).await;
    limiter.replace([grouped()]).unwrap();
    limiter.flush().await;
    let left = remaining(&alone).await;
    assert_eq!(remaining(&of_group).await, 100_000);
    let since = storm(&limiter, 8, 200).await;
    limiter.flush().await;
    assert_eq!(remaining(&alone).await, left);
    // Of a debt, a batch that is given back too late stays taken.
    assert!(left < 100_000 && remaining(&of_group).await <= 100_000 - since);
}

#[test]
fn after_flush_nothing_is_held_in_advance() {
    let current_thread = Builder::new_current_thread().enable_all().build();
    let workers = &mut Builder::new_multi_thread();
    let workers = workers.worker_threads(2).enable_all().build();
    let limit = Limit::fixed_window(1_000_000, DAY);
    let prefetch = Prefetch::new().max_age(MINUTE);
    for runtime in [current_thread, workers].map(Result::unwrap) {
        let server = Server::start();
        let left = runtime.block_on(async {
            let limiter = process(&server, Policy::new("hot", limit).prefetch(prefetch)).await;
            let other = process(&server, Policy::new("hot", limit)).await;
            let mut left = 1_000_000;
            until("some are held", async || {
                left -= storm(&limiter, 8, 20).await;
                remaining(&other).await < left
            })
            .await;
            limiter.flush().await;
            left
        });
        drop(runtime);
        let next = Builder::new_current_thread().enable_all().build().unwrap();
        let next = next.block_on(async {
            let limiter = process(&server, Policy::new("hot", limit)).await;
            remaining(&limiter).await
        });
        assert_eq!(next, left);
    }
}

/// A store that takes round trips, and never answers when something is given back.
struct Silent(MemoryStore);

impl Store for Silent {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let gives_back = checks
            .iter()
            .any(|check| matches!(check.action, Action::Cancel { .. }));
        let Answer::Ready(answer) = self.0.ask(checks) else {
            panic!("from memory");
        };
        Answer::Pending(Box::pin(async move {
            if gives_back {
                std::future::pending::<()>().await;
            }
            answer
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn flush_waits_at_most_twice_as_long_as_a_decision() {
    let policy = prefetching(Limit::fixed_window(1_000_000, DAY));
    let limiter = Limiter::builder(Silent(MemoryStore::new()), [policy]);
    let limiter = limiter.timeout(SECOND).build().unwrap();
    while !limiter
        .check("hot", "everybody")
        .await
        .unwrap()
        .is_prefetched()
    {
        tokio::task::yield_now().await;
    }
    let (is_flushed, waited) = timed(limiter.flush()).await;
    assert!(!is_flushed);
    assert!((SECOND..=2 * SECOND).contains(&waited), "{waited:?}");
}

/// A background task of a process that is gone asks Redis for nothing.
#[tokio::test]
async fn a_limiter_that_ends_gives_back_what_is_left() {
    let server = Server::start();
    let limit = Limit::fixed_window(100_000, DAY);
    let limiter = process(&server, prefetching(limit)).await;
    let allowed = storm(&limiter, 8, 200).await;
    let other = process(&server, Policy::new("hot", limit)).await;
    let remaining = || async { other.peek("hot", "everybody").await.unwrap().remaining() };
    drop(limiter);
    let give_up = tokio::time::Instant::now() + 20 * SECOND;
    while remaining().await != 100_000 - allowed && tokio::time::Instant::now() < give_up {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(remaining().await, 100_000 - allowed);
}

#[tokio::test]
async fn no_batches_in_shadow_or_while_limiting_is_off() {
    let server = Server::start();
    let limiter = process(&server, prefetching(Limit::gcra(1_000_000, SECOND))).await;
    limiter
        .set_mode("hot", tower_throttle::Mode::Shadow)
        .unwrap();
    let before = server.calls("evalsha");
    // One after the other, so that none share a trip.
    storm(&limiter, 1, 400).await;
    assert_eq!(server.calls("evalsha") - before, 400);
    limiter.turn_off();
    let before = server.calls("evalsha");
    storm(&limiter, 4, 100).await;
    assert_eq!(server.calls("evalsha") - before, 0);
}

#[test]
fn prefetch_that_makes_no_sense_is_refused() {
    let sliding = [
        Limit::sliding_log(10, SECOND),
        Limit::sliding_window(10, SECOND),
        Limit::sliding_counter(10, SECOND),
        Limit::concurrency(10),
        Limit::leaky_bucket(10, per_second(10)),
    ];
    let gcra = || prefetching(Limit::gcra(10, SECOND));
    let prefetch = |prefetch| Policy::new("hot", Limit::gcra(10, SECOND)).prefetch(prefetch);
    let needs = |other| {
        format!(
            "got \"a policy with {other}\": {other} needs the store for each request, leave one of the two out"
        )
    };
    let mut refused = vec![
        (gcra().max_wait(SECOND), needs("max_wait")),
        (
            gcra().penalty(Penalty::after(5, MINUTE, HOUR)),
            needs("penalty"),
        ),
        (gcra().settle(|_: &ResponseHead<'_>| 1), needs("settle")),
        (
            gcra().count_if(|_: &ResponseHead<'_>| true),
            needs("count_if"),
        ),
    ];
    for limit in sliding {
        refused.push((
            prefetching(limit),
            "is an option of gcra, token_bucket, fixed_window and a leaky_bucket without delay"
                .to_owned(),
        ));
    }
    let build = |policy| Limiter::new(tower_throttle::AlwaysAllow, [policy]).map(|_| ());
    for (policy, reason) in refused {
        let error = build(policy).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("policy \"hot\": prefetch: {reason}")
        );
    }
    for share in [0.0, -0.1, 1.1, f64::NAN] {
        let error = build(prefetch(Prefetch::new().share(share))).unwrap_err();
        assert!(matches!(error, ConfigError::InPolicy { .. }), "{error}");
        assert!(error.to_string().contains("prefetch.share: got"), "{error}");
    }
    for age in [Duration::from_millis(9), Duration::from_millis(60_001)] {
        let error = build(prefetch(Prefetch::new().max_age(age))).unwrap_err();
        assert!(
            error.to_string().contains("prefetch.max_age: got"),
            "{error}"
        );
    }
    build(prefetching(
        Limit::leaky_bucket(10, per_second(10)).without_delay(),
    ))
    .unwrap();
}

/// The tasks of a hot subject end together with their work.
#[tokio::test]
async fn nothing_runs_on_when_nobody_asks_any_more() {
    let server = Server::start();
    let limiter = process(&server, prefetching(Limit::fixed_window(1_000_000, HOUR))).await;
    let before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    storm(&limiter, 8, 500).await;
    let give_up = tokio::time::Instant::now() + 20 * SECOND;
    loop {
        let alive = tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks();
        if alive <= before {
            break;
        }
        assert!(tokio::time::Instant::now() < give_up, "{alive} tasks");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = server.calls("evalsha");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.calls("evalsha"), before);
}
