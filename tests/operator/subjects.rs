//! Subjects: the key that operators write, and the hash that they are shown, which finds all of its
//! keys in Redis.

use std::process::Command;

use serde_json::json;
use tower_throttle::{
    Extension, HOUR, Header, Host, Key, Limit, Limiter, MemoryStore, Operator, PeerAddr, Penalty,
    Policy,
};

use crate::{Site, ten};
use support::redis::Server as Redis;

/// Each subject as operators write it, and the key that an extractor makes of a request.
#[tokio::test]
async fn a_subject_is_the_key_that_the_extractors_make() {
    let address = |text: &str| Key::address(text.parse().unwrap());
    let site = Site::of([ten("api")]).await;
    for (subject, key) in [
        (json!("everybody"), Key::everybody()),
        (json!("missing"), Key::missing()),
        (json!({ "address": "203.0.113.9" }), address("203.0.113.9")),
        (
            json!({ "unattributed": "10.0.0.1" }),
            Key::unattributed("10.0.0.1".parse().unwrap()),
        ),
        (
            json!({ "header": { "name": "X-User", "value": " bob\t" } }),
            Key::header("x-user", b"bob"),
        ),
        (json!({ "user": 7 }), Key::user(7)),
        (json!({ "user": "8" }), Key::user(8)),
        (json!({ "user": 9 }), Key::user("9")),
        (json!({ "user": u64::MAX }), Key::user(u64::MAX)),
        (json!({ "text": "+49 30" }), Key::from("+49 30")),
        (json!({ "number": -7 }), Key::from(-7)),
        (json!({ "number": u64::MAX }), Key::from(u64::MAX)),
        (
            json!([{ "address": "203.0.113.9" }, { "user": 7 }]),
            Key::all([address("203.0.113.9"), Key::user(7)]),
        ),
        (
            json!({ "hash": site.limiter.subject_of("carol").to_string() }),
            Key::from("carol"),
        ),
    ] {
        let _ = site.limiter.check_cost("api", &key, 3).await.unwrap();
        assert_eq!(site.left("api", subject.clone()).await, 7, "{subject}");
    }
}

/// Half of a key, or another one, is nobody's: its quota would always look unused.
#[tokio::test]
async fn a_subject_that_the_policys_key_can_never_be_is_refused() {
    let address = json!({ "address": "203.0.113.9" });
    let header = |name: &str| json!({ "header": { "name": name, "value": "alice" } });
    let site = Site::of([
        ten("login").by((PeerAddr, Header::new("x-user"))),
        ten("user").by(Extension::with(|id: &u64| Key::user(*id))),
        ten("tenant").by(Host),
    ])
    .await;
    for (policy, subject, is_key) in [
        ("login", json!([address, header("X-User")]), true),
        (
            "login",
            json!([{ "unattributed": "10.0.0.1" }, header("x-user")]),
            true,
        ),
        ("login", json!("missing"), true),
        ("login", json!({ "hash": "0".repeat(32) }), true),
        ("login", address.clone(), false),
        ("login", json!([address]), false),
        ("login", json!([header("x-user"), address]), false),
        ("login", json!([address, header("x-users")]), false),
        ("login", json!([address, header("x-user"), address]), false),
        ("user", json!({ "user": 7 }), true),
        ("user", json!({ "user": "7" }), true),
        ("user", json!({ "number": 7 }), false),
        ("tenant", json!({ "text": "acme.example.com" }), true),
        ("tenant", json!({ "user": "acme" }), false),
    ] {
        let body = json!({ "policy": policy, "subject": subject });
        for path in ["peek", "reset"] {
            let answer = site.post(path, body.clone()).await;
            assert_eq!(answer.status(), if is_key { 200 } else { 400 }, "{body}");
        }
    }
    let body = json!({ "policy": "login", "subject": address });
    let (_, detail) = site.refused("peek", body).await;
    assert!(detail.contains(r#"{"header":{"name":"x-user""#), "{detail}");
}

#[tokio::test]
async fn hashes_are_those_of_a_limiter_with_a_secret_too() {
    let operator = Operator::new();
    let limiter = Limiter::builder(MemoryStore::new(), [ten("api")])
        .key_secret("a secret")
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    let _ = site.limiter.check("api", "alice").await.unwrap();
    let alice = json!({ "policy": "api", "subject": { "text": "alice" } });
    let shown = site.post_ok("peek", alice).await["subject"].take();
    assert_ne!(
        shown,
        tower_throttle::Subject::from(&Key::from("alice")).to_string()
    );
    assert_eq!(site.left("api", json!({ "hash": shown })).await, 9);
}

/// The shell command of docs/operations.md, for this subject and this server.
fn reset_from_the_shell(redis: &Redis, subject: &str) {
    let page = include_str!("../../docs/operations.md");
    let blocks = page.split("```sh\n").skip(1);
    let mut blocks = blocks.map(|block| block.split("```").next().unwrap());
    let block = blocks.find(|block| block.contains("redis-cli")).unwrap();
    let (hash, line) = block.split_once('\n').unwrap();
    assert!(hash.starts_with("hash="), "{hash}");
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let program = ["redis-cli", "valkey-cli"].into_iter().find(is_there);
    let program =
        program.expect("this test needs redis-cli or valkey-cli, which comes with the server");
    let line = line.replace("redis-cli", &format!("{program} -p {}", redis.port()));
    let script = format!("hash={subject}\n{line}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let is_quiet = output.stderr.is_empty();
    assert!(output.status.success() && is_quiet, "{script}{output:?}");
}

#[tokio::test]
async fn the_hash_finds_all_keys_of_a_subject_in_redis() {
    let redis = Redis::start();
    let names = ["api", "it's per client", r#"say "when""#, r"back\slash\n"];
    let penalty = Penalty::after(1, HOUR, HOUR);
    let burst = Policy::new("burst", Limit::gcra(10, HOUR)).group("per client, in all");
    let policies = names.map(|name| ten(name).penalty(penalty));
    let policies = policies.into_iter().chain([burst]);
    let limiter = Limiter::builder(redis.store().await, policies)
        .timeout(60 * tower_throttle::SECOND)
        .build()
        .unwrap();
    let names = names.into_iter().chain(["burst"]);
    for policy in names.clone() {
        for user in ["alice", "bob"] {
            let _ = limiter.check_cost(policy, user, 5).await.unwrap();
        }
        // Bans her, too.
        let _ = limiter.check_cost(policy, "alice", 6).await.unwrap();
    }
    let site = Site::about(limiter, Operator::new()).await;
    let alice = json!({ "policy": "api", "subject": { "text": "alice" } });
    let shown = site.post_ok("peek", alice).await["subject"].take();
    let shown = shown.as_str().unwrap();
    reset_from_the_shell(&redis, shown);
    for policy in names {
        assert_eq!(
            site.left(policy, json!({ "text": "alice" })).await,
            10,
            "{policy}"
        );
        assert_eq!(
            site.left(policy, json!({ "text": "bob" })).await,
            5,
            "{policy}"
        );
    }
    assert!(!redis.keys().iter().any(|key| key.contains(shown)));
    // Also when there is nothing to reset.
    reset_from_the_shell(&redis, shown);
}
