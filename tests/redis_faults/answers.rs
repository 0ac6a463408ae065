//! A store that gives no useful answer: what is reported, and that nothing is counted. Decisions
//! during and after each outage are tested in `faults`.
#![cfg(feature = "deadpool")]

use std::time::{Duration, Instant};

use support::asking::{check_of, pending_answer_of};
use support::proxy::{Proxy, Way};
use support::redis::{Server, free_port};
use support::rights::{documented_rights, user_with};
use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{
    Decision, FailureMode, Limit, Limiter, MINUTE, Outcome, Policy, RedisStore, SECOND,
    StoreErrorKind, per_minute,
};

/// Far longer than a decision takes here, far shorter than a test may take to notice a hang.
const GENEROUS: Duration = Duration::from_secs(5);
/// No lease may be shorter.
const SHORTEST_LEASE: Duration = Duration::from_millis(150);

/// One policy of each failure mode.
fn limiter(store: RedisStore, timeout: Duration) -> Limiter {
    let policies = [
        Policy::new("open", Limit::gcra(5, MINUTE)).on_store_failure(FailureMode::Allow),
        Policy::new("closed", Limit::gcra(5, MINUTE)).on_store_failure(FailureMode::Deny),
    ];
    let builder = Limiter::builder(store, policies);
    builder.timeout(timeout).build().unwrap()
}

async fn both(limiter: &Limiter) -> [Decision; 2] {
    let open = limiter.check("open", "alice").await.unwrap();
    [open, limiter.check("closed", "alice").await.unwrap()]
}

/// Each policy follows its failure mode, for one of these reasons, or because the circuit breaker
/// is open by now.
async fn assert_failed(limiter: &Limiter, kinds: &[StoreErrorKind]) {
    let started = Instant::now();
    let [open, closed] = both(limiter).await;
    assert!(started.elapsed() < GENEROUS, "a failure must be quick");
    let kind = open.store_failure().expect("the store failed");
    let is_expected = |kind| kinds.contains(&kind) || kind == StoreErrorKind::BreakerOpen;
    assert!(is_expected(kind), "{kind:?}");
    assert_eq!(open.outcome(), Outcome::FailedOpen(kind));
    assert!(open.is_allowed() && !closed.is_allowed());
    assert!(matches!(closed.outcome(), Outcome::FailedClosed(kind) if is_expected(kind)));
    assert_eq!(closed.retry_after(), Some(SECOND));
}

/// Asks until the store answers again.
async fn recovers(limiter: &Limiter) -> Decision {
    let started = Instant::now();
    loop {
        let decision = limiter.check("closed", "bob").await.unwrap();
        if decision.store_failure().is_none() {
            return decision;
        }
        assert!(
            started.elapsed() < 4 * GENEROUS,
            "no way back: {decision:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_missing_server_fails_at_once_and_is_found_when_it_comes() {
    let mut server = Server::start();
    let store = server.builder().connect_lazy().unwrap();
    server.kill();
    let limiter = limiter(store, SECOND);
    for _ in 0..5 {
        assert_failed(&limiter, &[StoreErrorKind::Unreachable]).await;
    }
    server.restart();
    assert_eq!(recovers(&limiter).await.outcome(), Outcome::Allowed);
}

/// Also with a deadline shorter than most.
#[tokio::test]
async fn a_connection_that_swallows_everything_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let limiter = limiter(store, Duration::from_millis(3));
    let _ = recovers(&limiter).await;
    proxy.set(Way::Blackhole);
    assert_failed(&limiter, &[StoreErrorKind::TimedOut]).await;
    // New connections pass.
    proxy.set(Way::Pass);
    let _ = recovers(&limiter).await;
}

/// A worker may be in less of a hurry than a request.
#[tokio::test]
async fn a_long_deadline_is_waited_for() {
    let server = Server::start();
    let limiter = limiter(server.store().await, 60 * SECOND);
    let _ = recovers(&limiter).await;
    server.query::<()>(("CLIENT", "PAUSE", 5_500, "ALL"));
    assert_eq!(both(&limiter).await[0].outcome(), Outcome::Allowed);
}

#[tokio::test]
async fn a_full_server_is_an_error_and_nothing_is_counted() {
    let server = Server::start();
    let limits = [
        ("gcra", Limit::gcra(5, MINUTE)),
        ("fixed_window", Limit::fixed_window(5, MINUTE)),
        ("sliding_log", Limit::sliding_log(5, MINUTE)),
    ];
    let policies = limits.map(|(name, limit)| Policy::new(name, limit));
    let builder = Limiter::builder(server.store().await, policies);
    let limiter = builder.timeout(GENEROUS).build().unwrap();
    for (name, _) in limits {
        server.set_full(true);
        let failed = limiter.check(name, "alice").await.unwrap();
        let full = Outcome::FailedOpen(StoreErrorKind::Full);
        assert_eq!(failed.outcome(), full, "{name}");
        server.set_full(false);
        let counted = limiter.check(name, "alice").await.unwrap();
        assert_eq!(counted.remaining(), 4, "{name}: counted meanwhile");
    }
}

#[tokio::test]
async fn a_read_only_replica_is_an_error_and_nothing_is_counted() {
    let server = Server::start();
    let limiter = limiter(server.store().await, GENEROUS);
    let follow = |host: &str, port: &str| {
        server.query::<()>(("REPLICAOF", host, port));
    };
    follow("127.0.0.1", &free_port().to_string());
    assert_failed(&limiter, &[StoreErrorKind::Busy]).await;
    follow("NO", "ONE");
    assert_eq!(recovers(&limiter).await.remaining(), 4);
}

/// A replica stays one for a while; a new connection for every question would be an attack on it.
#[tokio::test]
async fn a_connection_lost_repeatedly_is_not_remade_for_each_question() {
    let server = Server::start();
    let store = server.store().await;
    server.query::<()>(("REPLICAOF", "127.0.0.1", free_port()));
    let before = server.connections();
    let started = Instant::now();
    for _ in 0..100 {
        // Not through a limiter, whose circuit breaker would keep most of them from the store.
        let answer = pending_answer_of(
            &store,
            &[check_of(
                &PolicyId::new("api"),
                "alice",
                &Limit::gcra(5, MINUTE),
                Action::acquire(1),
            )],
        );
        assert_eq!(answer.await.unwrap_err().kind(), StoreErrorKind::Busy);
    }
    // One at once, then two a second; the last is this query's own.
    let most = 2 + started.elapsed().as_millis() / 500;
    let made = (server.connections() - before - 1) as u128;
    assert!(made <= most, "{made} connections");
}

#[tokio::test]
async fn connecting_tells_what_is_wrong_without_the_secret() {
    let address = format!("127.0.0.1:{}", free_port());
    let nobody = RedisStore::connect(&format!("redis://:hunter2@{address}")).await;
    let nobody = nobody.unwrap_err();
    assert_eq!(nobody.kind(), StoreErrorKind::Unreachable);
    let why = nobody.inner().unwrap().to_string();
    assert!(why.starts_with(&format!("{address}: ")), "{why}");
    // What `main` prints of it.
    let line = format!("{nobody:?}");
    assert!(line.contains(&why) && !line.contains("hunter2"), "{line}");
    assert_eq!(line, nobody.to_string());

    let server = Server::start_with(&["--requirepass", "the-right-one"]);
    for url in [
        server.url(),
        format!("redis://:hunter2@127.0.0.1:{}", server.port()),
        format!("redis://someone:hunter2@127.0.0.1:{}", server.port()),
    ] {
        let error = RedisStore::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
        let shown = format!(
            "{error} {error:?} {:?}",
            error.inner().map(ToString::to_string)
        );
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    for url in [
        "",
        "127.0.0.1:6379",
        "http://:hunter2@localhost",
        "redis://:hunter2@host:port",
    ] {
        let error = RedisStore::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{url}");
        let why = error.inner().unwrap().to_string();
        assert!(
            why.contains("expected redis://") && !why.contains("hunter2"),
            "{why}"
        );
    }
    let braces = RedisStore::builder("redis://localhost")
        .prefix("{a}")
        .connect_lazy();
    assert!(
        braces
            .unwrap_err()
            .inner()
            .unwrap()
            .to_string()
            .starts_with("prefix: ")
    );
}

#[tokio::test]
async fn a_pool_of_ones_own_is_used_and_keeps_its_size() {
    let server = Server::start();
    let config = deadpool_redis::Config::from_url(server.url());
    let pool = config
        .create_pool(Some(deadpool_redis::Runtime::Tokio1))
        .unwrap();
    let size = pool.status().max_size;
    let limiter = limiter(RedisStore::from_pool(pool.clone()), GENEROUS);
    assert_eq!(both(&limiter).await[0].remaining(), 4);
    assert_eq!(pool.status().max_size, size);
    assert_eq!(
        pool.status().size,
        0,
        "the connection in use is no longer the pool's"
    );
}

/// Its own name among others, and errors that are found at start-up.
#[tokio::test]
async fn a_pool_of_the_users_gets_the_same_advice_as_a_url() {
    let server = Server::start_with(&["--requirepass", "right"]);
    let pool = |password: &str| {
        let url = format!("redis://:{password}@127.0.0.1:{}", server.port());
        let pool = deadpool_redis::Config::from_url(url);
        pool.create_pool(Some(deadpool_redis::Runtime::Tokio1))
            .unwrap()
    };
    for prefix in ["shop", "forum"] {
        let store = RedisStore::builder_over_pool(pool("right")).prefix(prefix);
        let limiter = limiter(store.connect().await.unwrap(), GENEROUS);
        assert_eq!(both(&limiter).await[0].remaining(), 4, "{prefix}");
    }
    let refused = RedisStore::builder_over_pool(pool("wrong")).connect().await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Configuration);
}

/// It shows nothing about the server.
#[tokio::test]
async fn a_pool_of_the_users_that_is_exhausted_is_recognized() {
    let server = Server::start();
    let manager = deadpool_redis::Manager::new(server.url()).unwrap();
    let pool = deadpool_redis::Pool::builder(manager).max_size(1);
    let pool = pool.build().unwrap();
    let used = pool.get().await.unwrap();
    let builder = RedisStore::builder_over_pool(pool);
    let error = builder.connect().await.unwrap_err();
    drop(used);
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    let told = error.inner().unwrap().to_string();
    assert_eq!(told, "all connections of the pool are in use");
}

#[test]
fn a_number_of_decisions_that_makes_no_sense_is_refused() {
    for number in [0, 65_537, usize::MAX] {
        let builder = RedisStore::builder("redis://127.0.0.1").max_in_flight(number);
        let error = builder.connect_lazy().unwrap_err();
        let told = error.inner().unwrap().to_string();
        let expected = format!("max_in_flight: got {number}, expected 1 to 65536");
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn the_documented_rights_suffice() {
    let server = Server::start();
    let url = user_with(&server, documented_rights());
    let store = RedisStore::builder(&url).connect().await.unwrap();
    let store = store.without_deny_cache();
    let elsewhere = RedisStore::builder(&url).prefix("other").connect().await;
    let kind = elsewhere.unwrap_err().kind();
    assert_eq!(kind, StoreErrorKind::Configuration, "no right to its keys");
    let millisecond = Duration::from_millis(1);
    let limits = [
        ("gcra", Limit::gcra(5, MINUTE)),
        ("fraction", Limit::gcra(7, MINUTE)),
        ("fixed_window", Limit::fixed_window(5, MINUTE)),
        ("sliding_log", Limit::sliding_log(5, MINUTE)),
        // Short, so that logs are trimmed and begin anew.
        ("short_log", Limit::sliding_log(5, millisecond)),
        ("shorter_log", Limit::sliding_log(5, 20 * millisecond)),
        ("token_bucket", Limit::token_bucket(5, per_minute(5))),
        ("leaky_bucket", Limit::leaky_bucket(5, per_minute(5))),
        ("sliding_window", Limit::sliding_window(5, MINUTE)),
        ("sliding_counter", Limit::sliding_counter(5, MINUTE)),
        // Short, so that leases lapse.
        ("concurrency", Limit::concurrency(5).lease(SHORTEST_LEASE)),
    ];
    let policies = limits.map(|(name, limit)| Policy::new(name, limit));
    let limiter = Limiter::builder(store, policies);
    let limiter = limiter.timeout(GENEROUS).build().unwrap();
    let started = Instant::now();
    let mut round = 0;
    while round < 40 || started.elapsed() < 3 * SHORTEST_LEASE {
        round += 1;
        for (name, _) in limits {
            let decision = limiter.check(name, "alice").await.unwrap();
            assert_eq!(decision.store_failure(), None, "{name}");
            let decision = limiter.credit(name, "alice", 1).await.unwrap();
            assert_eq!(decision.store_failure(), None, "{name}, giving back");
        }
    }
}
