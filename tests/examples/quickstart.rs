//! The example `quickstart` from outside: what a newcomer sees who runs it.
#![cfg(all(feature = "axum", feature = "memory", feature = "redis"))]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::OnceLock;

use reqwest::{Client, Response};
use serde_json::Value;
use support::example::{listening, serving};
use support::redis::{Process, Server as Redis};
use support::web::GENEROUS;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::example::program("quickstart"))
}

/// A running quickstart, stopped with its test.
struct Running {
    _process: Process,
    url: String,
    printed: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Over this Redis, or in its own memory.
    fn start(redis: Option<&str>) -> Self {
        let mut process = Process::spawn(&mut serving(program(), redis));
        let (url, printed) = listening(&mut process);
        Self {
            _process: process,
            url,
            printed,
        }
    }

    async fn login(&self, user: &str) -> Response {
        let request = Client::new().post(format!("{}/login", self.url));
        request.header("x-user", user).send().await.unwrap()
    }

    /// As [`login`](Self::login), until the store has answered in time: on a busy machine a request
    /// may exceed the deadline.
    async fn judged_login(&self, user: &str) -> Response {
        let decided = async {
            loop {
                let response = self.login(user).await;
                if response.headers().contains_key("ratelimit") {
                    return response;
                }
            }
        };
        let decided = tokio::time::timeout(GENEROUS, decided).await;
        decided.expect("the store never answers in time")
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).unwrap().to_str().unwrap()
}

#[tokio::test]
async fn the_quickstart_limits_logins_and_addresses() {
    let quickstart = Running::start(None);
    let hello = Client::new().get(&quickstart.url).send().await.unwrap();
    assert_eq!(hello.status(), 200);
    assert_eq!(header(&hello, "ratelimit-policy"), r#""client";q=60;w=60"#);
    for _ in 0..3 {
        let welcome = quickstart.login("alice").await;
        assert_eq!(welcome.status(), 200);
        assert_eq!(
            header(&welcome, "ratelimit-policy"),
            r#""client";q=60;w=60, "login";q=3;w=60"#
        );
    }
    let denied = quickstart.login("alice").await;
    assert_eq!(denied.status(), 429);
    let wait: u64 = header(&denied, "retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(header(&denied, "content-type"), "application/problem+json");
    let problem: Value = denied.json().await.unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
    assert_eq!(quickstart.login("bob").await.status(), 200);
}

#[tokio::test]
async fn two_of_them_over_one_redis_share_the_limit() {
    let redis = Redis::start();
    let url = redis.url();
    let both = [Running::start(Some(&url)), Running::start(Some(&url))];
    let mut served = 0;
    for turn in 0..4 {
        match both[turn % 2].judged_login("alice").await.status().as_u16() {
            200 => served += 1,
            status => {
                assert_eq!(status, 429);
                break;
            }
        }
    }
    // Three, unless a request exceeded the deadline that Redis has counted.
    assert!((1..=3).contains(&served), "{served}");
    for quickstart in &both {
        assert_eq!(quickstart.judged_login("alice").await.status(), 429);
    }
}

#[test]
fn the_quickstart_prints_lines_to_try_with_its_address() {
    let mut quickstart = Running::start(None);
    for expected in ["curl -i ", "curl -i -X POST -H 'x-user: alice' "] {
        let mut line = String::new();
        quickstart.printed.read_line(&mut line).unwrap();
        assert!(line.contains(expected), "{line}");
        assert!(line.contains(&quickstart.url), "{line}");
    }
}

/// If one is not passed on, the crate and its dependencies are built once more for the examples.
#[test]
fn examples_are_built_with_every_feature_that_there_is() {
    let mut handed_on = BTreeSet::from(support::example::FEATURES.map(|(name, _)| name));
    handed_on.insert("default");
    for manifest in [
        include_str!("../../Cargo.toml"),
        include_str!("../../examples/Cargo.toml"),
        include_str!("../Cargo.toml"),
    ] {
        let section = manifest.split_once("[features]\n").unwrap().1;
        let section = section.split_once("\n[").unwrap().0;
        let names = section.lines().filter_map(|line| line.split_once(" = "));
        let names: BTreeSet<_> = names.map(|(name, _)| name).collect();
        assert_eq!(names, handed_on);
    }
}
