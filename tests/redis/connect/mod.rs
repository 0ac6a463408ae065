//! The ways to reach a Redis server, and the errors for those that lead nowhere.
#![cfg(feature = "deadpool")]

mod cluster;
mod credentials;
mod denied_elsewhere;
mod endpoint;
mod far;
mod groups;
mod histories;
mod hooks;
mod load;
mod nameless;
mod pools;
mod self_test;
mod sentinel;
mod several;
mod tcp;
#[cfg(feature = "redis-tls")]
mod tls;
mod urls;
mod wrong_urls;

use std::error::Error;
use std::time::Duration;

use tempfile::TempDir;
use tower_throttle::{DAY, Decision, FailureMode, Limit, Limiter, Policy, RedisStore, StoreError};

use support::redis::Server;

/// Far longer than a decision takes here.
const GENEROUS: Duration = Duration::from_secs(5);
/// More than any test takes.
const PLENTY: u64 = 1_000_000;

/// One policy, `api`, whose decisions show what was used: [`PLENTY`] minus what remains.
fn limiter(store: RedisStore, timeout: Duration) -> Limiter {
    let policy = Policy::new("api", Limit::fixed_window(PLENTY, DAY));
    let builder = Limiter::builder(store, [policy.on_store_failure(FailureMode::Deny)]);
    builder.timeout(timeout).build().unwrap()
}

async fn take(limiter: &Limiter) -> Decision {
    limiter.check("api", "alice").await.unwrap()
}

/// A store that works counts.
async fn assert_counts(store: RedisStore) {
    let limiter = limiter(store, GENEROUS);
    let before = take(&limiter).await;
    assert_eq!(before.store_failure(), None);
    assert_eq!(take(&limiter).await.remaining(), before.remaining() - 1);
}

/// A server that also listens on a Unix socket, the socket's path, and the directory that it goes
/// with.
fn server_on_a_socket(options: &[&str]) -> (Server, String, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("redis.sock");
    let path = socket.to_str().unwrap().to_owned();
    let server = Server::start_with(&[&["--unixsocket", &path], options].concat());
    (server, path, directory)
}

/// Who is connected, a line for each.
fn client_list(server: &Server) -> String {
    server.query(("CLIENT", "LIST"))
}

/// The text of the cause, which is a part of the error's own. None of the errors beneath it contains the secret
/// of these tests.
fn text_of(error: &StoreError) -> String {
    let mut all = format!("{error} {error:?}");
    let mut beneath = error.inner().map(|inner| inner as &dyn Error);
    let told = beneath.map(ToString::to_string).unwrap_or_default();
    // In one line.
    let told_in_line = told.replace('\n', "\\n");
    assert!(error.to_string().ends_with(&told_in_line), "{error}");
    while let Some(error) = beneath {
        all = format!("{all}: {error:?} {error}");
        beneath = error.source();
    }
    assert!(!all.contains("hunter2"), "{all}");
    told
}
