//! Credentials that change while a store is connected.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tower_throttle::deadpool_redis::{Config, Runtime};
use tower_throttle::{Limiter, MINUTE, RedisCredentials, RedisStore, StoreErrorKind};

use crate::connect::cluster::SUBJECTS;
use crate::connect::{GENEROUS, limiter, take, text_of};
use support::cluster::Cluster;
use support::logins::{connections_of, let_in, wait_for};
use support::redis::Server;
use support::rights::documented_rights;
use support::sentinel::{Watched, until};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

async fn assert_decided(limiter: &Limiter, subject: &str) {
    let decision = limiter.check("api", subject).await.unwrap();
    assert_eq!(decision.store_failure(), None, "{subject}");
}

#[tokio::test]
async fn an_open_connection_logs_in_again_when_the_credentials_change() {
    let server = Server::start();
    let_in(&server, &["first", "second"]);
    let credentials = RedisCredentials::new("first", "first");
    let builder = server.builder().credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    assert_decided(&limiter, "alice").await;
    let connections = connections_of(&server, "first");
    assert_eq!(connections.len(), 1);
    credentials.replace("second", "second");
    // It waits for no question, as a token may expire while nobody asks one.
    let is_second = || connections_of(&server, "second") == connections;
    wait_for("it logs in again", is_second).await;
    assert_decided(&limiter, "alice").await;
    assert_eq!(connections_of(&server, "second"), connections);
}

#[tokio::test]
async fn a_new_connection_logs_in_with_the_newest_credentials() {
    let server = Server::start();
    let_in(&server, &["first"]);
    let credentials = RedisCredentials::new("first", "first");
    // In place of those in the URL.
    let url = format!("redis://nobody:hunter2@127.0.0.1:{}/3", server.port());
    let builder = RedisStore::builder(&url).credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    assert_decided(&limiter, "alice").await;
    server.query::<()>(("ACL", "DELUSER", "first"));
    let_in(&server, &["second"]);
    assert!(take(&limiter).await.store_failure().is_some());
    credentials.replace("second", "second");
    wait_until_decided(&limiter).await;
    assert_eq!(connections_of(&server, "second").len(), 1);
    assert!(server.info("keyspace").contains("db3:keys=1"));
}

async fn wait_until_decided(limiter: &Limiter) {
    let started = Instant::now();
    while take(limiter).await.store_failure().is_some() {
        assert!(started.elapsed() < MINUTE, "nobody is let in again");
        sleep(PAUSE).await;
    }
}

/// One that is wrong is refused where a connection is open, and has no effect there.
#[tokio::test]
async fn a_connection_goes_on_if_the_new_credentials_are_refused() {
    let server = Server::start();
    let_in(&server, &["first", "second"]);
    let credentials = RedisCredentials::new("first", "first");
    let builder = server.builder().credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    let connections = connections_of(&server, "first");
    let refused = server.calls("auth");
    credentials.replace("second", "hunter2");
    wait_for("it tries to log in", || server.calls("auth") > refused).await;
    assert_decided(&limiter, "alice").await;
    assert_eq!(connections_of(&server, "first"), connections);
    // The next ones are tried nevertheless.
    credentials.replace("second", "second");
    let is_second = || connections_of(&server, "second") == connections;
    wait_for("it logs in again", is_second).await;
    assert_decided(&limiter, "alice").await;
}

/// As before Redis 6, and behind some proxies.
#[tokio::test]
async fn a_password_alone_may_change_too() {
    let server = Server::start_with(&["--requirepass", "first"]);
    let credentials = RedisCredentials::new("", "first");
    let builder = server.builder().credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    server.query::<()>(("ACL", "SETUSER", "default", ">second"));
    let before = server.calls("auth");
    credentials.replace("", "second");
    wait_for("it logs in again", || server.calls("auth") > before).await;
    let stats = server.info("commandstats");
    let of_auth = stats.lines().find(|line| line.starts_with("cmdstat_auth:"));
    assert!(of_auth.unwrap().contains(",failed_calls=0"), "{of_auth:?}");
    assert_decided(&limiter, "alice").await;
}

#[tokio::test]
async fn the_connections_to_all_nodes_of_a_cluster_log_in_again() {
    let cluster = Cluster::start();
    for node in &cluster.masters {
        let_in(node, &["first", "second"]);
    }
    let credentials = RedisCredentials::new("first", "first");
    let builder = RedisStore::builder(&cluster.url()).credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    for subject in SUBJECTS {
        assert_decided(&limiter, subject).await;
    }
    credentials.replace("second", "second");
    for node in &cluster.masters {
        let has_changed = || {
            connections_of(node, "first").is_empty() && connections_of(node, "second").len() == 1
        };
        wait_for("each logs in again", has_changed).await;
    }
    for subject in SUBJECTS {
        assert_decided(&limiter, subject).await;
    }
}

#[tokio::test]
async fn the_master_named_by_sentinel_has_the_newest_credentials() {
    let watched = Watched::start_with(&[], "");
    let_in(&watched.master, &["first", "second"]);
    let credentials = RedisCredentials::new("first", "first");
    let builder = RedisStore::builder(&watched.url()).credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    let connections = connections_of(&watched.master, "first");
    credentials.replace("second", "second");
    let is_second = || connections_of(&watched.master, "second") == connections;
    wait_for("it logs in again", is_second).await;
    watched
        .master
        .query::<()>(("CLIENT", "KILL", "USER", "second"));
    wait_until_decided(&limiter).await;
    assert_eq!(connections_of(&watched.master, "second").len(), 1);
    until("the first are gone", || {
        connections_of(&watched.master, "first").is_empty()
    });
}

/// While the former master still answers.
#[tokio::test]
async fn a_masters_successor_gets_the_newest_credentials() {
    let watched = Watched::start_with(&[], "");
    for server in [&watched.master, &watched.replica] {
        let_in(server, &["first", "second"]);
    }
    let credentials = RedisCredentials::new("first", "first");
    let builder = RedisStore::builder(&watched.url()).credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    credentials.replace("second", "second");
    watched.keep_master();
    watched.fail_over();
    let started = Instant::now();
    while watched.replica.calls("evalsha") == 0 {
        assert!(started.elapsed() < MINUTE, "the successor is not asked");
        assert_decided(&limiter, "alice").await;
        sleep(PAUSE).await;
    }
    let connections = connections_of(&watched.replica, "second");
    assert_eq!(connections.len(), 1);
    credentials.replace("first", "first");
    let is_first = || connections_of(&watched.replica, "first") == connections;
    wait_for("it logs in again", is_first).await;
    assert_decided(&limiter, "alice").await;
}

/// Otherwise each connection that is replaced would leave something behind.
#[tokio::test]
async fn a_connection_that_is_replaced_logs_in_no_more() {
    let server = Server::start();
    let_in(&server, &["first", "second"]);
    let credentials = RedisCredentials::new("first", "first");
    let builder = server.builder().credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    for _ in 0..3 {
        server.query::<()>(("CLIENT", "KILL", "USER", "first"));
        wait_until_decided(&limiter).await;
    }
    let before = server.calls("auth");
    credentials.replace("second", "second");
    wait_for("it logs in again", || {
        connections_of(&server, "second").len() == 1
    })
    .await;
    assert_eq!(server.calls("auth"), before + 1);
}

#[tokio::test]
async fn credentials_need_the_documented_rights_only() {
    let server = Server::start();
    for user in ["first", "second"] {
        let password = format!(">{user}");
        let rights = documented_rights();
        server.query::<()>(("ACL", "SETUSER", user, "reset", "on", password, rights));
    }
    let credentials = RedisCredentials::new("first", "first");
    let builder = server.builder().credentials(credentials.clone());
    let limiter = limiter(builder.connect().await.unwrap(), GENEROUS);
    credentials.replace("second", "second");
    wait_for("it logs in again", || {
        connections_of(&server, "second").len() == 1
    })
    .await;
    assert_decided(&limiter, "alice").await;
}

#[tokio::test]
async fn a_pool_has_credentials_of_its_own() {
    let pool = Config::from_url("redis://localhost").create_pool(Some(Runtime::Tokio1));
    let builder = RedisStore::builder_over_pool(pool.unwrap());
    let builder = builder.credentials(RedisCredentials::new("app", "hunter2"));
    let error = builder.connect_lazy().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(
        text_of(&error).contains("set them there"),
        "{}",
        text_of(&error)
    );
}

#[test]
fn credentials_are_shown_nowhere() {
    let credentials = RedisCredentials::new("app-user", "hunter2");
    let builder = RedisStore::builder("redis://localhost").credentials(credentials.clone());
    for shown in [format!("{credentials:?}"), format!("{builder:?}")] {
        assert!(
            !shown.contains("hunter2") && !shown.contains("app-user"),
            "{shown}"
        );
    }
}
