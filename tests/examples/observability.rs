//! The example `observability` from outside: the text that Prometheus reads agrees with the answers
//! to requests.
#![cfg(all(
    feature = "memory",
    feature = "metrics",
    feature = "redis",
    feature = "tracing"
))]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Instant;

use reqwest::{Client, Method};
use support::example::{listening, serving};
use support::prometheus::Scrape;
use support::redis::{Process, Server as Redis};
use support::web::GENEROUS;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| support::example::program("observability"))
}

/// A running example, stopped with its test.
struct Running {
    process: Process,
    url: String,
    log: Option<JoinHandle<String>>,
}

impl Running {
    /// Over this Redis, or in its own memory.
    fn start(redis: Option<&str>) -> Self {
        let mut command = serving(program(), redis);
        command.env("NO_COLOR", "1").stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let mut errors = process.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            errors.read_to_string(&mut log).unwrap();
            log
        });
        let (url, mut printed) = listening(&mut process);
        // It goes on printing, and somebody has to read.
        std::thread::spawn(move || std::io::copy(&mut printed, &mut std::io::sink()));
        Self {
            process,
            url,
            log: Some(log),
        }
    }

    async fn send(&self, method: Method, path: &str, user: &str) -> u16 {
        let request = Client::new().request(method, format!("{}{path}", self.url));
        let response = request.header("x-user", user).send().await.unwrap();
        response.status().as_u16()
    }

    async fn hello(&self) -> u16 {
        self.send(Method::GET, "/", "").await
    }

    async fn login(&self, user: &str) -> u16 {
        self.send(Method::POST, "/login", user).await
    }

    async fn text(&self, path: &str) -> String {
        let response = Client::new()
            .get(format!("{}{path}", self.url))
            .send()
            .await;
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    }

    async fn decisions(&self) -> Decisions {
        Decisions(Scrape::parse(&self.text("/metrics").await))
    }

    /// Ends it. Returns everything that it has logged.
    fn log(mut self) -> String {
        self.process.kill().unwrap();
        self.log.take().unwrap().join().unwrap()
    }
}

struct Decisions(Scrape);

impl Decisions {
    /// The results of this policy, and how many of each.
    fn of(&self, policy: &str) -> BTreeMap<String, u32> {
        let series = self.0.series("tower_throttle_decisions_total");
        let of_policy = series.filter(|(labels, _)| labels["policy"] == policy);
        let counts = of_policy.map(|(labels, count)| (labels["result"].clone(), count as u32));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

fn counts<const N: usize>(counts: [(&str, u32); N]) -> BTreeMap<String, u32> {
    counts
        .map(|(result, count)| (result.to_owned(), count))
        .into()
}

#[tokio::test]
async fn the_counters_are_those_of_the_requests_that_were_sent() {
    let example = Running::start(None);
    for number in 1..=13 {
        let status = if number <= 10 { 200 } else { 429 };
        assert_eq!(example.hello().await, status, "request {number}");
    }
    let decisions = example.decisions().await;
    assert_eq!(
        decisions.of("client"),
        counts([("allowed", 8), ("near_limit", 2), ("denied", 3)])
    );
    // Its five, and all others; requests denied by another policy are not counted by it.
    assert_eq!(
        decisions.of("client-half"),
        counts([("allowed", 4), ("near_limit", 1), ("shadow_denied", 8)])
    );
    assert_eq!(decisions.of("login"), counts([]));
    let keys = decisions.0.value("tower_throttle_memory_keys", &[]);
    assert_eq!(keys, Some(2.0), "a log for each of two policies");
}

#[tokio::test]
async fn the_list_and_the_log_show_a_denied_subject_by_the_same_hash() {
    let example = Running::start(None);
    for _ in 0..5 {
        example.login("mallory@example.com").await;
    }
    let top = example.text("/top").await;
    let [denials, policy, subject, mode] =
        top.lines().next().unwrap().split(' ').collect::<Vec<_>>()[..]
    else {
        panic!("not four words: {top}");
    };
    assert_eq!((denials, policy, mode), ("2", "login", "enforce"));
    assert_eq!(subject.len(), 32, "{subject}");
    let log = example.log();
    let denials = log
        .lines()
        .filter(|line| line.contains(" denied "))
        .collect::<Vec<_>>();
    assert_eq!(denials.len(), 2, "{log}");
    assert!(denials.iter().all(|line| line.contains(subject)), "{log}");
    assert!(!log.contains("mallory"), "{log}");
}

#[tokio::test]
async fn a_request_that_is_held_up_is_counted_with_its_delay() {
    let example = Running::start(None);
    let started = Instant::now();
    let mut sent = 0;
    let decisions = loop {
        let report = || example.send(Method::GET, "/report", "");
        assert_eq!(tokio::join!(report(), report()), (200, 200));
        sent += 2;
        let decisions = example.decisions().await;
        // On a very busy machine the second may come after the first's two seconds are over.
        if decisions.of("report").contains_key("waited") {
            break decisions;
        }
        assert!(sent < 10, "never held up: {}", decisions.0.text());
    };
    let report = decisions.of("report");
    assert_eq!(report.values().sum::<u32>(), sent);
    let delay = |name: &str| {
        let name = format!("tower_throttle_delay_seconds_{name}");
        decisions.0.value(&name, &[("policy", "report")]).unwrap()
    };
    assert_eq!(delay("count"), f64::from(report["waited"]));
    // In seconds; none of them was held up for longer than it took to answer them all.
    let longest = started.elapsed().as_secs_f64();
    assert!(delay("sum") > 0.0, "{}", delay("sum"));
    assert!(
        delay("sum") <= longest * delay("count"),
        "{} of {longest} s each",
        delay("sum")
    );
}

/// How many decisions of this policy had this result.
fn count(decisions: &Decisions, policy: &str, result: &str) -> u32 {
    decisions.of(policy).get(result).copied().unwrap_or(0)
}

#[tokio::test]
async fn denials_are_counted_by_memory_and_server_over_redis() {
    let redis = Redis::start();
    let example = Running::start(Some(&redis.url()));
    let (mut denied, started) = (0, Instant::now());
    let decisions = loop {
        // On a busy machine some exceed the deadline and are answered with 503.
        denied += u32::from(example.login("alice").await == 429);
        let decisions = example.decisions().await;
        if count(&decisions, "login", "denied_from_memory") > 0 {
            break decisions;
        }
        let is_in_time = denied < 50 && started.elapsed() < GENEROUS;
        assert!(is_in_time, "never from memory: {}", decisions.0.text());
    };
    let by_redis = count(&decisions, "login", "denied");
    assert!(by_redis > 0);
    assert_eq!(
        by_redis + count(&decisions, "login", "denied_from_memory"),
        denied
    );
    let trips = "tower_throttle_store_duration_seconds_count";
    let trips = decisions.0.value(trips, &[("result", "ok")]);
    assert!(trips.unwrap() >= f64::from(by_redis), "{trips:?}");
}

#[tokio::test]
async fn over_redis_an_outage_and_denials_are_counted_apart() {
    let mut redis = Redis::start();
    let example = Running::start(Some(&redis.url()));
    let before = example.decisions().await;
    let breaker = |decisions: &Decisions, state| {
        let gauge = "tower_throttle_breaker_state";
        decisions.0.value(gauge, &[("state", state)]).unwrap()
    };
    assert_eq!(breaker(&before, "closed"), 1.0);
    redis.kill();
    for _ in 0..4 {
        assert_eq!(example.hello().await, 200);
    }
    for user in ["bob", "carol", "dave"] {
        assert_eq!(example.login(user).await, 503);
    }
    let after = example.decisions().await;
    assert_eq!(after.of("client"), counts([("failed_open", 4 + 3)]));
    assert_eq!(after.of("client-half"), counts([("failed_open", 4 + 3)]));
    assert_eq!(after.of("login"), counts([("failed_closed", 3)]));
    let unanswered = after.0.series("tower_throttle_unanswered_total");
    assert_eq!(
        unanswered.map(|(_, count)| count).sum::<f64>(),
        7.0 + 7.0 + 3.0
    );
    // Five failures in a row, after which it is left alone.
    assert_eq!(breaker(&after, "closed"), 0.0);
    let failures = after.0.series("tower_throttle_store_failures_total");
    let failures: f64 = failures.map(|(_, count)| count).sum();
    assert!((5.0..=7.0).contains(&failures), "{failures}");
    let log = example.log();
    for text in [
        "let through uncounted",
        "denied because the store failed",
        "the circuit is open",
        "\"login\" denies all requests",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
}
