//! Servers behind Sentinel.

use std::time::Duration;

use tower_throttle::{Limiter, RedisStore, StoreErrorKind};

use crate::connect::load::{Load, used};
use crate::connect::{GENEROUS, PLENTY, assert_counts, client_list, limiter, take, text_of};
use support::proxy::{Proxy, Way};
use support::redis::{Server, free_port};
use support::sentinel::{NAME, Sentinel, Watched, until};

#[tokio::test]
async fn the_master_named_by_sentinel_has_login_and_database() {
    let options = ["--requirepass", "secret", "--masterauth", "secret"];
    let lines = "sentinel auth-pass main secret\nrequirepass other";
    // The Sentinel itself requires a password of its own.
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
            text_of(&error)
        );
        assert!(!text_of(&error).contains("hunter2"));
    }
}

/// As documented for `RedisStore`.
#[tokio::test]
async fn a_user_of_the_sentinel_needs_the_one_right() {
    let watched = Watched::start_with(
        &[],
        "user limiter on >pass -@all +sentinel|get-master-addr-by-name",
    );
    let url = format!(
        "{}?sentinel_user=limiter&sentinel_password=pass",
        watched.url()
    );
    assert_counts(RedisStore::connect(&url).await.unwrap()).await;
}

#[tokio::test]
async fn a_gone_sentinel_is_passed_over_and_a_wrong_name_reported() {
    let watched = Watched::start_with(&[], "");
    let port = watched.sentinel_port();
    let gone = free_port();
    let url = |name: &str| format!("redis-sentinel://127.0.0.1:{gone},127.0.0.1:{port}/{name}");
    assert_counts(RedisStore::connect(&url("main")).await.unwrap()).await;
    let error = RedisStore::connect(&url("other")).await.unwrap_err();
    assert!(
        text_of(&error).contains("no master named \"other\""),
        "{}",
        text_of(&error)
    );
    let none = format!("redis-sentinel://127.0.0.1:{gone}/main");
    let error = RedisStore::connect(&none).await.unwrap_err();
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unreachable,
        "{}",
        text_of(&error)
    );
}

#[tokio::test]
async fn the_only_sentinel_may_take_as_long_as_a_single_server() {
    let watched = Watched::start_with(&[], "");
    let sentinel = Proxy::to(watched.sentinel_port());
    sentinel.set(Way::Delay(Duration::from_millis(300)));
    let url = format!("redis-sentinel://127.0.0.1:{}/{NAME}", sentinel.port());
    assert_counts(RedisStore::connect(&url).await.unwrap()).await;
}

/// As with one that is cut off from the others, or was restarted from its first file.
async fn assert_passed_over(stale: &Sentinel, watched: &Watched) {
    let url = stale_first(stale, watched);
    assert_counts(RedisStore::connect(&url).await.unwrap()).await;
    assert_counts(RedisStore::builder(&url).connect_lazy().unwrap()).await;
}

fn stale_first(stale: &Sentinel, watched: &Watched) -> String {
    let (stale, good) = (stale.port(), watched.sentinel_port());
    format!("redis-sentinel://127.0.0.1:{stale},127.0.0.1:{good}/{NAME}")
}

#[tokio::test]
async fn a_sentinel_that_names_a_server_that_is_gone_is_passed_over() {
    let watched = Watched::start_with(&[], "");
    let stale = Sentinel::watching(free_port(), "");
    assert_passed_over(&stale, &watched).await;
}

#[tokio::test]
async fn a_sentinel_that_names_a_server_that_hangs_is_passed_over() {
    let watched = Watched::start_with(&[], "");
    let hung = Server::start();
    let stale = Sentinel::watching(hung.port(), "");
    hung.signal("STOP");
    assert_passed_over(&stale, &watched).await;
    hung.signal("CONT");
}

#[tokio::test]
async fn a_sentinel_that_names_a_replica_is_passed_over() {
    let watched = Watched::start_with(&[], "");
    let stale = Sentinel::watching(watched.replica.port(), "");
    assert_passed_over(&stale, &watched).await;
    let alone = format!("redis-sentinel://127.0.0.1:{}/{NAME}", stale.port());
    let error = RedisStore::connect(&alone).await.unwrap_err();
    assert!(text_of(&error).contains("CKQUORUM"), "{}", text_of(&error));
}

/// It may have another address by the next question.
#[tokio::test]
async fn a_master_is_called_by_its_name_whatever_it_answers() {
    let watched = Watched::start_with(&[], "");
    watched.master.set_full(true);
    let error = RedisStore::connect(&watched.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full);
    let told = text_of(&error);
    assert!(told.starts_with("master \"main\": "), "{told}");
}

#[tokio::test]
async fn the_sentinel_that_named_the_master_is_asked_first_again() {
    let watched = Watched::start_with(&[], "");
    let stale = Sentinel::watching(watched.replica.port(), "");
    let store = RedisStore::connect(&stale_first(&stale, &watched)).await;
    let limiter = limiter(store.unwrap(), GENEROUS);
    let _ = take(&limiter).await;
    // An attempt that asks it goes on to the replica.
    let before = watched.replica.connections();
    for _ in 0..6 {
        lose_connection(&limiter, &watched.master).await;
    }
    // In turns it would be half of them. If an attempt takes half a second, another one starts
    // beside it, which asks the other Sentinel.
    let asked = watched.replica.connections() - before - 1;
    assert!(asked < 3, "{asked} times");
}

/// And waits for another one.
async fn lose_connection(limiter: &Limiter, server: &Server) {
    let clients = client_list(server);
    let ours = clients
        .lines()
        .find(|client| client.contains(" cmd=eval"))
        .unwrap();
    let id = ours.split(' ').find_map(|word| word.strip_prefix("id="));
    server.query::<u8>(("CLIENT", "KILL", "ID", id));
    let until_there = async {
        while take(limiter).await.store_failure().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // A single one of these decisions may take up to `GENEROUS`.
    let is_there = tokio::time::timeout(6 * GENEROUS, until_there).await;
    assert!(is_there.is_ok(), "there is no other connection");
}

/// Kills or stops the master under load; the successor has no more than was asked for.
async fn assert_fails_over(watched: Watched, store: RedisStore, signal: &str) {
    let limiter = limiter(store, Duration::from_millis(50));
    let load = Load::start(&limiter, "alice");
    tokio::task::block_in_place(|| {
        load.wait_for_more();
        watched.master.signal(signal);
        until("the failure modes decide meanwhile", || load.failed() > 0);
        load.wait_for_more();
        watched.master.signal("CONT");
    });
    let asked = load.stop().await;
    let taken = used(&limiter, "alice").await;
    assert!(taken >= 100, "the successor counts");
    assert!(taken <= asked.most, "{taken} taken, {asked:?}");
    assert_eq!(watched.replica.keys().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_is_left_for_its_successor() {
    let watched = Watched::start_with(&[], "");
    let store = RedisStore::connect(&watched.url()).await.unwrap();
    assert_fails_over(watched, store, "STOP").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_is_followed_and_charges_nothing_twice() {
    let watched = Watched::start_with(&[], "");
    let store = RedisStore::connect(&watched.url()).await.unwrap();
    assert_fails_over(watched, store, "KILL").await;
}

/// Fails over under load while the former master goes on to answer as one.
async fn assert_leaves_the_former_master(watched: &Watched, store: RedisStore) {
    let limiter = limiter(store, GENEROUS);
    let load = Load::start(&limiter, "alice");
    watched.keep_master();
    tokio::task::block_in_place(|| {
        load.wait_for_more();
        watched.fail_over();
        until("the replica is promoted", || {
            // Its clients are cut off at that moment.
            let info = watched.replica.try_info("replication");
            info.is_ok_and(|info| info.contains("role:master"))
        });
        until("the successor decides", || {
            watched.replica.calls("evalsha") > 0
        });
        load.wait_for_more();
        let (former, now) = (&watched.master, &watched.replica);
        // What was in flight is back by now.
        let decided = [former, now].map(|server| server.calls("evalsha"));
        load.wait_for_more();
        assert_eq!(former.calls("evalsha"), decided[0]);
        assert!(now.calls("evalsha") > decided[1]);
        assert!(former.info("replication").contains("role:master"));
    });
    assert_eq!(load.failed(), 0);
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_followed_before_the_demotion() {
    let watched = Watched::start_with(&[], "");
    let store = RedisStore::connect(&watched.url()).await.unwrap();
    assert_leaves_the_former_master(&watched, store).await;
}

/// As documented for `RedisStore`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_followed_with_the_one_right() {
    let user = "user limiter on >pass -@all +sentinel|get-master-addr-by-name";
    let watched = Watched::start_with(&[], user);
    let login = "sentinel_user=limiter&sentinel_password=pass";
    let store = RedisStore::connect(&format!("{}?{login}", watched.url())).await;
    assert_leaves_the_former_master(&watched, store.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_followed_past_a_gone_or_outdated_sentinel() {
    for is_gone in [true, false] {
        let watched = Watched::start_with(&[], "");
        let first = Proxy::to(watched.sentinel_port());
        let (port, second) = (first.port(), watched.sentinel_port());
        let url = format!("redis-sentinel://127.0.0.1:{port},127.0.0.1:{second}/{NAME}");
        let store = RedisStore::connect(&url).await.unwrap();
        let stale = Sentinel::watching(free_port(), "");
        match is_gone {
            true => first.set(Way::Refuse),
            false => {
                first.lead_to(stale.port());
                first.cut();
            }
        }
        assert_leaves_the_former_master(&watched, store).await;
    }
}

/// It names a server that answers as a master.
#[tokio::test]
async fn a_sentinel_that_is_outvoted_moves_nobody() {
    let watched = Watched::start_with(&[], "");
    let other = Server::start();
    let stale = Sentinel::watching(other.port(), "");
    let asked = Proxy::to(stale.port());
    let (good, stale) = (watched.sentinel_port(), asked.port());
    let url = format!("redis-sentinel://127.0.0.1:{good},127.0.0.1:{stale}/{NAME}");
    let limiter = limiter(RedisStore::connect(&url).await.unwrap(), GENEROUS);
    let mut taken = 0;
    while asked.commands() < 10 {
        assert_eq!(take(&limiter).await.store_failure(), None);
        taken += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(take(&limiter).await.remaining(), PLENTY - taken - 1);
    assert_eq!(other.calls("eval"), 0);
}

#[tokio::test]
async fn nothing_is_left_of_a_store_that_is_dropped() {
    let watched = Watched::start_with(&[], "");
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let limiter = limiter(RedisStore::connect(&watched.url()).await.unwrap(), GENEROUS);
    assert_eq!(take(&limiter).await.store_failure(), None);
    assert!(tasks() > before);
    drop(limiter);
    let none_are_left = async {
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), none_are_left).await;
    assert!(ended.is_ok(), "{} tasks", tasks() - before);
}

#[cfg(feature = "deadpool-sentinel")]
mod pool {
    use deadpool_redis::sentinel::{Config, Pool, SentinelServerType};

    use super::*;

    fn pool(watched: &Watched) -> Pool {
        pool_of(SentinelServerType::Master, watched)
    }

    fn pool_of(servers: SentinelServerType, watched: &Watched) -> Pool {
        let urls = vec![format!("redis://127.0.0.1:{}", watched.sentinel_port())];
        let config = Config::from_urls(urls, "main".to_owned(), servers);
        let runtime = deadpool_redis::Runtime::Tokio1;
        config.create_pool(Some(runtime)).unwrap()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_pool_of_the_users_follows_a_failover() {
        let watched = Watched::start_with(&[], "");
        let pool = pool(&watched);
        assert_fails_over(watched, RedisStore::from_sentinel_pool(pool), "KILL").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_users_pool_follows_a_failover_of_a_hanging_master() {
        let watched = Watched::start_with(&[], "");
        let pool = pool(&watched);
        assert_fails_over(watched, RedisStore::from_sentinel_pool(pool), "STOP").await;
    }

    /// A pool keeps what was given back to it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_pooled_connection_to_a_demoted_master_is_dropped() {
        let watched = Watched::start_with(&[], "");
        let pool = pool(&watched);
        let kept = [pool.get().await.unwrap(), pool.get().await.unwrap()];
        drop(kept);
        watched.fail_over();
        tokio::task::block_in_place(|| {
            until("the master is demoted", || {
                // Its clients are cut off at that moment.
                let info = watched.master.try_info("replication");
                info.is_ok_and(|info| info.contains("role:slave"))
            });
        });
        assert_counts(RedisStore::from_sentinel_pool(pool)).await;
        assert_eq!(watched.replica.keys().len(), 1);
    }

    /// However many connections the pool may have: the next one would lead to a replica, too.
    #[tokio::test]
    async fn a_pool_of_replicas_is_reported_and_asked_one_at_a_time() {
        let watched = Watched::start_with(&[], "");
        let pool = pool_of(SentinelServerType::Replica, &watched);
        pool.resize(32);
        let before = watched.replica.connections();
        let connected = RedisStore::builder_over_sentinel_pool(pool).connect().await;
        let error = connected.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unreachable);
        assert!(
            text_of(&error).contains("connections to replicas"),
            "{}",
            text_of(&error)
        );
        // The pool's client makes two of one. An attempt that takes half a second is not the last.
        let made = watched.replica.connections() - before;
        assert!(made < 16, "{made}");
    }
}
