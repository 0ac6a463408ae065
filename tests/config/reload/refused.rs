//! A file that is refused leaves everything as it was.

use std::sync::{Arc, Mutex};

use tower_throttle::{ChangeEvent, ConfigFile, Mode, Observer};

use super::file::{Limits, limit, watch, with};

/// The changes that it got, each in a word or two.
#[derive(Clone, Default)]
struct Changes(Arc<Mutex<Vec<String>>>);

impl Observer for Changes {
    fn on_change(&self, event: &ChangeEvent) {
        let words = match event {
            ChangeEvent::ConfigRead { error: None, .. } => "read".to_owned(),
            ChangeEvent::ConfigRead {
                error: Some(error), ..
            } => format!("refused {error}"),
            ChangeEvent::PolicyMode { from, to, .. } => {
                let [from, to] = [from, to].map(|mode| mode.map_or("none", Mode::as_str));
                format!("{from} to {to}")
            }
            other => panic!("{other:?}"),
        };
        self.0.lock().unwrap().push(words);
    }
}

#[tokio::test]
async fn observers_get_reads_changes_and_refusals() {
    let changes = Changes::default();
    let file = Limits::new(&limit("3/day"));
    let mut limits = watch(ConfigFile::new(file.path()).observe(changes.clone())).await;
    let told = || std::mem::take(&mut *changes.0.lock().unwrap());
    assert_eq!(told(), ["none to enforce", "read"]);
    file.replace(&limit("5/week"));
    let refused = limits.outcome().await.unwrap_err();
    assert_eq!(told(), [format!("refused {refused}")]);
    file.replace(&with("", "5/day", "mode = \"shadow\""));
    limits.reloaded().await;
    assert_eq!(told(), ["enforce to shadow", "read"]);
}

#[tokio::test]
async fn a_wrong_file_is_reported_by_line_and_limits_stay_in_force() {
    let file = Limits::new(&limit("3/day"));
    let mut limits = file.open().await;
    assert!(limits.is_allowed("client").await);

    file.replace(&limit("5/week"));
    let refused = limits.outcome().await.unwrap_err();
    let start = format!(
        "{}: line 6: policy \"client\": limit: got \"5/week\", expected permits in a period",
        file.path().display()
    );
    assert!(refused.starts_with(&start), "{refused}");
    assert_eq!(limits.remaining("client").await, 2);
    let error = limits.config.last_error().unwrap();
    assert_eq!(error.line(), Some(6));

    file.replace(&limit("5/day"));
    limits.reloaded().await;
    assert_eq!(limits.remaining("client").await, 4);
    assert!(limits.config.last_error().is_none());
}

#[tokio::test]
async fn a_setting_that_cannot_change_is_refused_with_its_line() {
    for (before, after, line, field) in [
        ("timeout = \"50ms\"", "timeout = \"60ms\"", 2, "timeout"),
        ("timeout = \"60ms\"", "", 1, "timeout"),
        // Also of a file that is tried in memory.
        ("prefix = \"shop\"", "prefix = \"other\"", 2, "prefix"),
        ("", "secret = { env = \"CARGO_PKG_NAME\" }", 2, "secret"),
        (
            "secret = { env = \"CARGO_PKG_NAME\" }",
            "secret = { env = \"CARGO_PKG_VERSION\" }",
            2,
            "secret",
        ),
    ] {
        let file = Limits::new(&with(before, "3/day", ""));
        let mut limits = file.open().await;
        file.replace(&with(after, "9/day", ""));
        let refused = limits.outcome().await.unwrap_err();
        let end = format!(
            ": line {line}: {field}: cannot change while the service runs, restart it or restore \
             the old value"
        );
        assert!(refused.ends_with(&end), "{refused}");
        assert_eq!(limits.remaining("client").await, 3);
    }
}

/// It is already in force.
#[tokio::test]
async fn a_default_that_is_written_out_is_no_change() {
    let redis = support::redis::Server::start();
    let store = format!("store = \"{}\"", redis.url());
    let at = |head: &str| {
        let store = format!("{store}\n{head}");
        limit("3/day").replace("store = \"memory\"", &store)
    };
    for head in ["timeout = \"50ms\"", "prefix = \"throttle\""] {
        let file = Limits::new(&at(""));
        let mut limits = file.open().await;
        file.replace(&at(head));
        limits.reloaded().await;
        file.replace(&at(""));
        limits.reloaded().await;
    }
}

#[tokio::test]
async fn another_store_is_refused_without_its_address() {
    let redis = support::redis::Server::start();
    let there = format!("store = \"{}\"", redis.url());
    let at = |store: &str| limit("3/day").replace("store = \"memory\"", store);
    let file = Limits::new(&at(&there));
    let mut limits = file.open().await;
    for (store, field) in [
        ("store = \"memory\"", "line 1: store: cannot change"),
        (
            "store = \"redis://:hunter2@h:1\"",
            "line 1: store: cannot change",
        ),
        (
            &format!("{there}\nprefix = \"other\""),
            "line 2: prefix: cannot change",
        ),
    ] {
        file.replace(&at(store));
        let refused = limits.outcome().await.unwrap_err();
        assert!(refused.contains(field), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
        assert!(limits.is_allowed("client").await);
    }
    assert_eq!(redis.keys().len(), 1);
}
