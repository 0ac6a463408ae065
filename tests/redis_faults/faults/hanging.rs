//! Servers that are there but do not answer.

use tower_throttle::StoreErrorKind::{TimedOut, Unreachable};

use crate::faults::stage::Stage;
use support::redis::Server;

fn client(server: &Server, words: &[&str]) {
    server.query::<()>(("CLIENT", words));
}

#[tokio::test]
async fn a_process_that_is_stopped() {
    let mut stage = Stage::start().await;
    stage
        .endures(
            "SIGSTOP",
            &[TimedOut, Unreachable],
            |server, _| server.signal("STOP"),
            |server, _| server.signal("CONT"),
        )
        .await;
}

#[tokio::test]
async fn after_a_long_stop_the_store_is_asked_within_a_second() {
    let mut stage = Stage::start().await;
    let stop = |server: &mut Server, _: &_| server.signal("STOP");
    let resume = |server: &mut Server, _: &_| server.signal("CONT");
    stage.is_soon_back("a long SIGSTOP", stop, resume).await;
}

/// Connections are accepted and answered meanwhile.
#[tokio::test]
async fn a_server_that_lets_scripts_wait() {
    let mut stage = Stage::start().await;
    stage
        .endures(
            "CLIENT PAUSE WRITE",
            &[TimedOut, Unreachable],
            |server, _| client(server, &["PAUSE", "600000", "WRITE"]),
            |server, _| client(server, &["UNPAUSE"]),
        )
        .await;
}

/// It ends by itself.
#[tokio::test]
async fn a_server_that_lets_all_commands_wait() {
    let mut stage = Stage::start().await;
    stage
        .endures(
            "CLIENT PAUSE ALL",
            &[TimedOut, Unreachable],
            |server, _| client(server, &["PAUSE", "2000", "ALL"]),
            |server, _| drop(server.info("server")),
        )
        .await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_slow_command() {
    let mut stage = Stage::over(Server::with_debug()).await;
    let mut asleep = None;
    stage
        .endures(
            "DEBUG SLEEP",
            &[TimedOut, Unreachable],
            |server, _| {
                let mut connection = server.connection().unwrap();
                asleep = Some(std::thread::spawn(move || {
                    let mut sleep = redis::cmd("DEBUG");
                    sleep.arg("SLEEP").arg("2");
                    sleep.query::<()>(&mut connection).unwrap();
                }));
            },
            |server, _| drop(server.info("server")),
        )
        .await;
    asleep.unwrap().join().unwrap();
}
