//! Servers that answer with refusals.

use std::time::Duration;

use tower_throttle::StoreErrorKind::{
    Busy, Configuration, Full, Interrupted, TimedOut, Unreachable,
};
use tower_throttle::{BreakerState, RedisStore, SECOND};

use crate::faults::stage::{Stage, limiter, outage, recovery};
use support::proxy::Proxy;
use support::redis::{Server, free_port};
use support::sentinel::until;

fn set(server: &Server, name: &str, value: &str) {
    server.query::<()>(("CONFIG", "SET", name, value));
}

/// Options that not every server accepts.
fn try_set(server: &Server, name: &str, value: &str) {
    let _ = server.try_query::<()>(("CONFIG", "SET", name, value));
}

/// On a connection that exists already, or that nobody waits for.
fn run_beside(server: &Server, words: &'static [&'static str]) -> std::thread::JoinHandle<()> {
    let mut connection = server.connection().unwrap();
    std::thread::spawn(move || {
        // It may end with an error: a script that is killed.
        let _ = redis::Cmd::new().arg(words).query::<()>(&mut connection);
    })
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script() {
    let mut stage = Stage::start().await;
    let mut script = None;
    stage
        .endures(
            "BUSY",
            // Until it knows that the script is slow.
            &[Busy, TimedOut, Unreachable],
            |server, _| {
                set(server, "lua-time-limit", "50");
                let words = &["EVAL", "while true do end", "0"];
                script = Some(run_beside(server, words));
            },
            |server, _| server.query::<()>(("SCRIPT", "KILL")),
        )
        .await;
    script.unwrap().join().unwrap();
}

#[tokio::test]
async fn a_server_that_is_loading_its_data() {
    let mut stage = Stage::over(Server::with_debug()).await;
    let mut reload = None;
    stage
        .endures(
            "LOADING",
            &[Busy, TimedOut, Unreachable],
            |server, _| {
                // It answers each time that this much is loaded: 2 MiB if this cannot be set
                // (before Redis 7.0), which is why the values are long.
                server.query::<()>(("DEBUG", "POPULATE", "20000", "key", "1024"));
                set(server, "rdbcompression", "no");
                try_set(server, "loading-process-events-interval-bytes", "1024");
                // Microseconds for each key.
                set(server, "key-load-delay", "200");
                reload = Some(run_beside(server, &["DEBUG", "RELOAD"]));
                until("it is loading", || {
                    server
                        .try_info("persistence")
                        .is_ok_and(|info| info.contains("\nloading:1"))
                });
            },
            |server, _| {
                // Before Redis 7.0 it has to be waited for.
                try_set(server, "key-load-delay", "0");
                until("it has loaded", || {
                    server
                        .try_info("persistence")
                        .is_ok_and(|info| info.contains("\nloading:0"))
                });
            },
        )
        .await;
    reload.unwrap().join().unwrap();
    stage.server.query::<()>("FLUSHALL");
}

#[tokio::test]
async fn a_server_that_cannot_save() {
    let mut stage = Stage::start().await;
    stage
        .endures(
            "MISCONF",
            &[Busy],
            |server, _| {
                set(server, "save", "3600 1");
                server.remove_directory();
                server.query::<()>("BGSAVE");
                until("it has failed to save", || {
                    server
                        .info("persistence")
                        .contains("rdb_last_bgsave_status:err")
                });
            },
            |server, _| set(server, "stop-writes-on-bgsave-error", "no"),
        )
        .await;
    set(&stage.server, "save", "");
}

#[tokio::test]
async fn a_master_without_the_replicas_that_it_wants() {
    let mut stage = Stage::start().await;
    stage
        .endures(
            "NOREPLICAS",
            &[Busy],
            |server, _| set(server, "min-replicas-to-write", "1"),
            |server, _| set(server, "min-replicas-to-write", "0"),
        )
        .await;
}

fn demote(server: &Server) {
    server.query::<()>(("REPLICAOF", "127.0.0.1", free_port()));
}

fn promote(server: &mut Server, _: &Proxy) {
    server.query::<()>(("REPLICAOF", "NO", "ONE"));
}

#[tokio::test]
async fn a_master_that_is_demoted() {
    let mut stage = Stage::start().await;
    stage
        .endures("READONLY", &[Busy], |server, _| demote(server), promote)
        .await;
}

#[tokio::test]
async fn a_replica_that_has_lost_its_master() {
    let mut stage = Stage::start().await;
    let demote = |server: &mut Server, _: &_| {
        set(server, "replica-serve-stale-data", "no");
        demote(server);
    };
    stage.endures("MASTERDOWN", &[Busy], demote, promote).await;
}

#[tokio::test]
async fn a_server_with_too_many_clients() {
    let mut stage = Stage::start().await;
    // It would have no room for this connection either.
    let mut kept = stage.server.connection().unwrap();
    let mut run = |words: &[&str]| {
        let ran = redis::Cmd::new().arg(words).query::<()>(&mut kept);
        ran.unwrap();
    };
    let run = std::cell::RefCell::new(&mut run);
    stage
        .endures(
            "maxclients",
            &[Interrupted, Unreachable],
            |_, _| {
                run.borrow_mut()(&["CONFIG", "SET", "maxclients", "1"]);
                run.borrow_mut()(&["CLIENT", "KILL", "TYPE", "normal"]);
            },
            |_, _| run.borrow_mut()(&["CONFIG", "SET", "maxclients", "100"]),
        )
        .await;
}

/// It still denies subjects whose quota is used up, so it is not left alone.
#[tokio::test]
async fn a_server_that_is_full() {
    let stage = Stage::start().await;
    let known = stage.limiter.check("closed", "known").await.unwrap();
    stage.server.set_full(true);
    let mut refused = 0;
    for number in 0..30 {
        let key = match number % 2 {
            0 => "known".to_owned(),
            _ => format!("new {number}"),
        };
        let decision = stage.limiter.check("closed", key).await.unwrap();
        refused += u64::from(decision.store_failure() == Some(Full));
    }
    // On a busy machine some may be late.
    assert!(refused > 20, "{refused}");
    assert_eq!(stage.limiter.breaker_state(), BreakerState::Closed);
    stage.server.set_full(false);
    recovery(&stage.limiter).await;
    let left = stage.limiter.peek("closed", "known").await.unwrap();
    assert_eq!(left.remaining(), known.remaining(), "nothing was counted");
}

/// A lasting failure is retried seldom: servers lock out clients that keep trying.
#[tokio::test]
async fn a_password_that_is_changed() {
    let server = Server::start();
    let set_password = |words: &[&str]| server.query::<()>(("ACL", "SETUSER", words));
    set_password(&["limiter", "on", ">secret", "~*", "+@all"]);
    let proxy = Proxy::to(server.port());
    let url = format!("redis://limiter:secret@127.0.0.1:{}", proxy.port());
    let limiter = limiter(RedisStore::connect(&url).await.unwrap());
    recovery(&limiter).await;
    set_password(&["limiter", "resetpass", ">other"]);
    server.query::<()>(("CLIENT", "KILL", "USER", "limiter"));
    let outage = outage(&limiter, 3 * SECOND).await;
    outage.assert_reasons(&[Interrupted, Unreachable, Configuration]);
    outage.assert_failed(Configuration);
    let mut attempts = proxy.accepted();
    attempts.retain(|attempt| *attempt > outage.found_open());
    // One each 4 s or less, plus one if the breaker opened before the wrong password was reported.
    // With the pauses of other failures there would be three or more.
    assert!(attempts.len() <= 2, "{} attempts", attempts.len());
    set_password(&["limiter", ">secret"]);
    let recovery = recovery(&limiter).await;
    outage.print("password changed", recovery);
    assert!(recovery < Duration::from_secs(15), "{recovery:?}");
}
