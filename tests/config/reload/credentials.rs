//! Another login on the same servers takes effect at a reload, and everything else stays.

use std::time::Instant;

use tower_throttle::MINUTE;

use super::file::{Limits, limit};
use support::logins::{connections_of, ids_of, let_in, wait_for};
use support::redis::Server;
use support::sentinel::Watched;

/// A file with this store and no haste.
fn at(store: &str, permits: &str) -> String {
    let store = format!("store = {store:?}\ntimeout = \"5s\"");
    limit(permits).replace("store = \"memory\"", &store)
}

#[tokio::test]
async fn another_login_is_used_by_the_connections_that_are_open() {
    let server = Server::start();
    let_in(&server, &["first", "second"]);
    let url = |user: &str| format!("redis://{user}:{user}@127.0.0.1:{}", server.port());
    let file = Limits::new(&at(&url("first"), "3/day"));
    let mut limits = file.open().await;
    assert!(limits.is_allowed("client").await);
    let connections = connections_of(&server, "first");
    assert_eq!(connections.len(), 1);

    file.replace(&at(&url("second"), "9/day"));
    limits.reloaded().await;
    wait_for("it logs in again", || {
        connections_of(&server, "second") == connections
    })
    .await;
    assert_eq!(limits.remaining("client").await, 8);

    // After the one before, too.
    server.query::<()>(("ACL", "DELUSER", "first"));
    let_in(&server, &["third"]);
    file.replace(&at(&url("third"), "5/day"));
    limits.reloaded().await;
    wait_for("it logs in again", || {
        connections_of(&server, "third") == connections
    })
    .await;
    assert_eq!(limits.remaining("client").await, 4);
}

#[tokio::test]
async fn a_first_password_is_no_other_store() {
    let server = Server::start();
    let file = Limits::new(&at(&server.url(), "3/day"));
    let mut limits = file.open().await;
    assert!(limits.is_allowed("client").await);
    let_in(&server, &["second"]);
    let url = format!("redis://second:second@127.0.0.1:{}", server.port());
    file.replace(&at(&url, "3/day"));
    limits.reloaded().await;
    wait_for("it logs in", || {
        connections_of(&server, "second").len() == 1
    })
    .await;
    assert_eq!(limits.remaining("client").await, 2);
}

/// The Sentinels' own password, which each question to them needs, and the master's.
#[tokio::test]
async fn another_login_is_used_for_sentinels_and_the_master() {
    let watched = Watched::start_with(
        &[],
        "user first on >first ~* &* +@all\nuser second on >second ~* &* +@all",
    );
    let_in(&watched.master, &["first", "second"]);
    let url = |user: &str| {
        let plain = watched.url();
        let rest = plain.strip_prefix("redis-sentinel://").unwrap();
        format!(
            "redis-sentinel://{user}:{user}@{rest}?sentinel_user={user}&sentinel_password={user}"
        )
    };
    let file = Limits::new(&at(&url("first"), "3/day"));
    let mut limits = file.open().await;
    assert!(limits.is_allowed("client").await);
    let sentinel = redis::Client::open(format!("redis://127.0.0.1:{}", watched.sentinel_port()));
    let mut sentinel = sentinel.unwrap().get_connection().unwrap();
    let mut asked_by = |user: &str| {
        let list: String = redis::cmd("CLIENT")
            .arg("LIST")
            .query(&mut sentinel)
            .unwrap();
        ids_of(user, &list)
    };
    let asked = asked_by("first");
    assert_eq!(asked.len(), 1);
    file.replace(&at(&url("second"), "3/day"));
    limits.reloaded().await;
    wait_for("it logs in to the Sentinel again", || {
        asked_by("second") == asked
    })
    .await;
    let deleted = redis::cmd("ACL")
        .arg("DELUSER")
        .arg("first")
        .query(&mut sentinel);
    let () = deleted.unwrap();
    watched.master.query::<()>(("ACL", "DELUSER", "first"));
    wait_for("it logs in to the master again", || {
        connections_of(&watched.master, "first").is_empty()
    })
    .await;
    watched
        .master
        .query::<()>(("CLIENT", "KILL", "USER", "second"));
    // A new connection, which a Sentinel is asked for.
    let started = Instant::now();
    let limiter = limits.config.limiter();
    while limiter
        .peek("client", "somebody")
        .await
        .unwrap()
        .store_failure()
        .is_some()
    {
        assert!(started.elapsed() < MINUTE, "nobody is let in again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(limits.remaining("client").await, 2);
}

#[tokio::test]
async fn another_login_on_another_server_is_another_store() {
    let [server, other] = [Server::start(), Server::start()];
    for server in [&server, &other] {
        let_in(server, &["first", "hunter2"]);
    }
    let url = |user: &str, port: u16| format!("redis://{user}:{user}@127.0.0.1:{port}");
    let first = url("first", server.port());
    let file = Limits::new(&at(&first, "3/day"));
    let mut limits = file.open().await;
    for elsewhere in [
        url("hunter2", other.port()),
        format!("{}/2", url("hunter2", server.port())),
        format!("{}?protocol=3", url("hunter2", server.port())),
        format!(
            "redis-cluster://hunter2:hunter2@127.0.0.1:{}",
            server.port()
        ),
        "memory".to_owned(),
    ] {
        file.replace(&at(&elsewhere, "9/day"));
        let refused = limits.outcome().await.unwrap_err();
        assert!(
            refused.contains("line 1: store: cannot change"),
            "{refused}"
        );
        assert!(!refused.contains("hunter2"), "{refused}");
        assert!(connections_of(&server, "hunter2").is_empty());
        assert_eq!(limits.remaining("client").await, 3);
    }
}

/// Its rules are in force nevertheless.
#[tokio::test]
async fn a_refused_login_leaves_open_connections_alone() {
    #[cfg(feature = "tracing")]
    let (log, _listening) = support::log::Log::listen();
    let server = Server::start();
    let_in(&server, &["first"]);
    let url = |password: &str| format!("redis://first:{password}@127.0.0.1:{}", server.port());
    let file = Limits::new(&at(&url("first"), "3/day"));
    let mut limits = file.open().await;
    assert!(limits.is_allowed("client").await);
    let before = server.calls("auth");
    file.replace(&at(&url("hunter2"), "9/day"));
    limits.reloaded().await;
    wait_for("it tries", || server.calls("auth") > before).await;
    assert_eq!(limits.remaining("client").await, 8);
    #[cfg(feature = "tracing")]
    {
        let warned = || {
            let mut events = log.events().into_iter();
            events.find(|event| event.name.contains("new credentials"))
        };
        wait_for("it is told", || warned().is_some()).await;
        let error = &warned().unwrap().fields["error"];
        assert!(
            error.contains("refuses the user or the password"),
            "{error}"
        );
        assert!(!format!("{:?}", log.entries()).contains("hunter2"));
    }
}
