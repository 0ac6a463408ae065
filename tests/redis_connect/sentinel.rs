//! Servers that Sentinel names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tower_throttle::{Limiter, Outcome, RedisStore, StoreErrorKind};

use crate::support::sentinel::{Watched, until};
use crate::{GENEROUS, PLENTY, assert_counts, limiter, take, told};

#[tokio::test]
async fn the_master_that_sentinel_names_is_counted_on_with_login_and_database() {
    let options = ["--requirepass", "secret", "--masterauth", "secret"];
    let lines = "sentinel auth-pass main secret\nrequirepass other";
    // The server that the Sentinel runs on wants a password of its own.
    let watched = Watched::start_with(&options, lines);
    let url = watched.url();
    let rest = url.strip_prefix("redis-sentinel://").unwrap();
    let url = format!("redis-sentinel://:secret@{rest}/2?sentinel_password=other");
    assert_counts(RedisStore::connect(&url).await.unwrap()).await;
    assert!(watched.master.info("keyspace").contains("db2:keys=1"));
    for wrong in [
        format!("redis-sentinel://:hunter2@{rest}?sentinel_password=other"),
        format!("redis-sentinel://:secret@{rest}?sentinel_password=hunter2"),
    ] {
        let error = RedisStore::connect(&wrong).await.unwrap_err();
        assert_eq!(
            error.kind(),
            StoreErrorKind::Configuration,
            "{}",
            told(&error)
        );
        assert!(!told(&error).contains("hunter2"));
    }
}

#[tokio::test]
async fn a_sentinel_that_is_gone_is_passed_over_and_a_wrong_name_is_told() {
    let watched = Watched::start_with(&[], "");
    let port = watched.sentinel_port();
    let gone = crate::support::redis::free_port();
    let url = |name: &str| format!("redis-sentinel://127.0.0.1:{gone},127.0.0.1:{port}/{name}");
    assert_counts(RedisStore::connect(&url("main")).await.unwrap()).await;
    let error = RedisStore::connect(&url("other")).await.unwrap_err();
    assert!(
        told(&error).contains("no master named \"other\""),
        "{}",
        told(&error)
    );
    let none = format!("redis-sentinel://127.0.0.1:{gone}/main");
    let error = RedisStore::connect(&none).await.unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unreachable,
        "{}",
        told(&error)
    );
}

/// What a load saw.
#[derive(Default)]
struct Seen {
    allowed: AtomicU32,
    /// Questions that may have been counted, though nobody knows.
    doubtful: AtomicU32,
    failed: AtomicU32,
    stop: AtomicBool,
}

/// Asks without a pause, until told to stop.
async fn load(limiter: Limiter, seen: Arc<Seen>) {
    while !seen.stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let decision = take(&limiter).await;
        assert!(started.elapsed() < GENEROUS, "a failure must be quick");
        let counter = match decision.outcome() {
            Outcome::Allowed => &seen.allowed,
            Outcome::FailedClosed(
                StoreErrorKind::Interrupted | StoreErrorKind::TimedOut | StoreErrorKind::BadReply,
            ) => &seen.doubtful,
            Outcome::FailedClosed(_) => &seen.failed,
            other => panic!("{other:?}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if decision.store_failure().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Kills the master under load; the successor has no more than was asked for.
async fn assert_fails_over(mut watched: Watched, store: RedisStore) {
    let limiter = limiter(store, Duration::from_millis(50));
    let seen = Arc::new(Seen::default());
    let tasks: Vec<_> = (0..4)
        .map(|_| tokio::spawn(load(limiter.clone(), Arc::clone(&seen))))
        .collect();
    let allowed = || seen.allowed.load(Ordering::Relaxed);
    let wait_for_more = |most: u32| {
        let before = allowed();
        until("decisions go on", || allowed() >= before + most);
    };
    tokio::task::block_in_place(|| {
        wait_for_more(100);
        watched.master.kill();
        until("the failure modes decide meanwhile", || {
            seen.failed.load(Ordering::Relaxed) > 0
        });
        let before = allowed();
        until("decisions recover", || allowed() >= before + 100);
    });
    seen.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let asked = allowed() + seen.doubtful.load(Ordering::Relaxed);
    let taken = PLENTY - limiter.peek("api", "alice").await.unwrap().remaining();
    assert!(taken >= 100, "the successor counts");
    assert!(taken <= asked, "{taken} taken, {asked} asked for");
    assert_eq!(watched.replica.keys().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_is_followed_and_charges_nothing_twice() {
    let watched = Watched::start_with(&[], "");
    let store = RedisStore::connect(&watched.url()).await.unwrap();
    assert_fails_over(watched, store).await;
}

#[cfg(feature = "deadpool-sentinel")]
mod pool {
    use deadpool_redis::sentinel::{Config, Pool, SentinelServerType};

    use super::*;

    fn pool(watched: &Watched) -> Pool {
        let urls = vec![format!("redis://127.0.0.1:{}", watched.sentinel_port())];
        let config = Config::from_urls(urls, "main".to_owned(), SentinelServerType::Master);
        let runtime = deadpool_redis::Runtime::Tokio1;
        config.create_pool(Some(runtime)).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_pool_of_ones_own_follows_a_failover() {
        let watched = Watched::start_with(&[], "");
        let pool = pool(&watched);
        assert_fails_over(watched, RedisStore::from_sentinel_pool(pool)).await;
    }

    /// A pool keeps what was given back to it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_to_a_demoted_master_that_a_pool_kept_is_let_go_of() {
        let watched = Watched::start_with(&[], "");
        let pool = pool(&watched);
        let kept = [pool.get().await.unwrap(), pool.get().await.unwrap()];
        drop(kept);
        let mut failover = redis::cmd("SENTINEL");
        failover.arg("FAILOVER").arg("main");
        let port = watched.sentinel_port();
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let mut sentinel = client.get_connection().unwrap();
        until("the replica is fit to be promoted", || {
            failover.query::<()>(&mut sentinel).is_ok()
        });
        tokio::task::block_in_place(|| {
            until("the master is demoted", || {
                watched.master.info("replication").contains("role:slave")
            });
        });
        assert_counts(RedisStore::from_sentinel_pool(pool)).await;
        assert_eq!(watched.replica.keys().len(), 1);
    }
}
