//! The router for operators, over real sockets.
#![cfg(all(feature = "axum", feature = "memory", feature = "redis"))]

#[path = "support/http_store.rs"]
mod http_store;
mod support;

use std::net::SocketAddr;
use std::process::Command;

use axum::Router;
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use support::redis::{Server as Redis, free_port};
use tower_throttle::{
    AccessList, ClientAddr, DAY, Everybody, Extension, FailureMode, HOUR, Header, Key,
    KeyExtractor, Limit, Limiter, MINUTE, MemoryStore, Mode, Operator, Peer, PeerAddr, Penalty,
    Policy, QuotaLease, RateLimitLayer, RedisStore, RequestHead, Rules, TopDenied,
};

use self::http_store::{TestStore, Trip};

/// A limiter and what operators see of it.
struct Site {
    limiter: Limiter,
    url: String,
}

impl Site {
    async fn of(policies: impl IntoIterator<Item = Policy>) -> Self {
        let operator = Operator::new();
        let limiter = Limiter::builder(MemoryStore::new())
            .policies(policies)
            .observe(operator.clone())
            .build()
            .unwrap();
        Self::about(limiter, operator).await
    }

    async fn about(limiter: Limiter, operator: Operator) -> Self {
        let router = operator.router(limiter.clone());
        let url = support::web::serve(Router::new().nest_service("/limits", router)).await;
        Self {
            limiter,
            url: format!("{url}/limits"),
        }
    }

    async fn state(&self) -> Value {
        let answer = Client::new().get(format!("{}/state", self.url)).send();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["cache-control"], "no-store");
        assert_eq!(answer.headers()["content-type"], "application/json");
        answer.json().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Response {
        let post = Client::new().post(format!("{}/{path}", self.url));
        post.json(&body).send().await.unwrap()
    }

    /// An answer of 200.
    async fn told(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body.clone()).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path} {body}");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        answer.json().await.unwrap()
    }

    /// The status and the detail of a problem.
    async fn refused(&self, path: &str, body: Value) -> (u16, String) {
        problem(self.post(path, body).await).await
    }

    /// How much is left of a policy that gives ten.
    async fn left(&self, policy: &str, subject: Value) -> Value {
        let body = json!({ "policy": policy, "subject": subject });
        self.told("peek", body).await["remaining"].clone()
    }
}

async fn problem(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let headers: &HeaderMap = answer.headers();
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["cache-control"], "no-store");
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["status"], status);
    (status, problem["detail"].as_str().unwrap().to_owned())
}

fn ten(name: &str) -> Policy {
    Policy::new(name, Limit::sliding_log(10, HOUR))
}

/// A store whose server is not there.
fn unreachable() -> RedisStore {
    let store = RedisStore::builder(&format!("redis://127.0.0.1:{}", free_port()));
    store.connect_lazy().unwrap()
}

#[tokio::test]
async fn the_state_tells_policies_in_words_and_what_they_decided() {
    let site = Site::of([
        Policy::new("api", Limit::gcra(100, DAY).burst(1)).by(Header::new("x-user")),
        Policy::new("beta", Limit::sliding_log(1, HOUR)).mode(Mode::Shadow),
    ])
    .await;
    for policy in ["api", "api", "api", "beta", "beta"] {
        let _ = site.limiter.check(policy, "alice").await.unwrap();
    }
    let state = site.state().await;
    assert_eq!(state["on"], true);
    assert!(state["uptime_ms"].is_u64());
    let policies = state["policies"].as_array().unwrap();
    let words = |at: usize| {
        let policy = &policies[at];
        ["name", "algorithm", "limit", "mode"].map(|field| policy[field].as_str().unwrap())
    };
    assert_eq!(policies.len(), 2);
    assert_eq!(words(0), ["api", "gcra", "100 in 1 d, burst 1", "enforce"]);
    assert_eq!(words(1), ["beta", "sliding_log", "1 in any 1 h", "shadow"]);
    let decided = |of: &Value| {
        let counts = of["decisions"].as_object().unwrap().iter();
        let decided = counts.filter(|(_, count)| **count != json!(0));
        decided
            .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    let of = |name: &str, count| (name.to_owned(), count);
    // Its one permit taken, nothing is left.
    assert_eq!(
        decided(&policies[0]),
        [of("denied", 2), of("near_limit", 1)]
    );
    assert_eq!(
        decided(&policies[1]),
        [of("near_limit", 1), of("shadow_denied", 1)]
    );
    assert_eq!(
        decided(&state),
        [of("denied", 2), of("near_limit", 2), of("shadow_denied", 1)]
    );
}

#[tokio::test]
async fn the_state_tells_groups_leases_and_the_decisions_that_were_taken_from_a_batch() {
    let operator = Operator::new();
    let limit = Limit::fixed_window(100_000, MINUTE);
    let limiter = Limiter::builder(TestStore::new(Trip::Short))
        .policy(Policy::new("hot", limit).quota_lease(QuotaLease::new().share(0.5)))
        .policy(Policy::new("grouped", limit).group("client"))
        .observe(operator.clone())
        .timeout(MINUTE)
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    let mut leased = 0;
    for _ in 0..1_000 {
        let decision = site.limiter.check("hot", "everybody").await.unwrap();
        leased += u32::from(decision.is_leased());
        let _ = site.limiter.check("grouped", "everybody").await.unwrap();
    }
    assert!(leased > 100, "{leased}");
    let policies = site.state().await["policies"].take();
    let told = |at: usize| ["group", "quota_lease", "leased"].map(|field| &policies[at][field]);
    let lease = json!("at most 50 % for 1 s");
    assert_eq!(told(0), [&Value::Null, &lease, &json!(leased)]);
    assert_eq!(told(1), [&json!("client"), &Value::Null, &json!(0)]);
    for policy in 0..2 {
        assert_eq!(policies[policy]["decisions"]["allowed"], 1_000);
    }
}

#[tokio::test]
async fn requests_that_nobody_is_asked_about_are_counted_by_the_reason() {
    let operator = Operator::new();
    let denied = AccessList::new()
        .addresses(PeerAddr, ["127.0.0.1"])
        .unwrap();
    let limiter = Limiter::builder(MemoryStore::new())
        .policy(ten("api"))
        .deny(denied)
        .observe(operator.clone())
        .build()
        .unwrap();
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::new(limiter.clone()))
        .layer(axum::Extension(Peer::Address(SocketAddr::from((
            [127, 0, 0, 1],
            1,
        )))));
    let app = support::web::serve(app).await;
    assert_eq!(reqwest::get(&app).await.unwrap().status(), 403);
    let site = Site::about(limiter, operator).await;
    assert_eq!(site.state().await["refusals"]["listed"], 1);
}

#[tokio::test]
async fn a_store_in_memory_has_taken_no_trips() {
    let site = Site::of([ten("api")]).await;
    assert_eq!(
        site.state().await["store"],
        json!({
            "breaker": "closed", "answers": 0, "failures": 0, "answering_us": 0,
            "last_failure": null,
        })
    );
}

#[tokio::test]
async fn a_store_that_is_down_shows_in_the_state() {
    let operator = Operator::new();
    let limiter = Limiter::builder(unreachable())
        .policy(ten("api"))
        .observe(operator.clone())
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    // Often enough for the breaker.
    for _ in 0..20 {
        let _ = site.limiter.check("api", "alice").await.unwrap();
    }
    let state = site.state().await;
    let store = &state["store"];
    assert_ne!(store["breaker"], "closed");
    assert_eq!(store["answers"], store["failures"]);
    assert!(store["failures"].as_u64().unwrap() > 0, "{store}");
    assert!(store["last_failure"]["ago_ms"].is_u64());
    let reason = store["last_failure"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the store "), "{reason}");
    assert_eq!(state["decisions"]["failed_open"], 20);
}

#[tokio::test]
async fn who_is_denied_most_is_listed_with_the_hash_to_look_at() {
    let top = TopDenied::new(10);
    let operator = Operator::new().top_denied(top.clone());
    let limiter = Limiter::builder(MemoryStore::new())
        .policy(ten("api"))
        .observe(operator.clone())
        .observe(top)
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    assert_eq!(site.state().await["top_denied"], json!([]));
    for _ in 0..13 {
        let _ = site.limiter.check("api", "mallory").await.unwrap();
    }
    let mallory = site.limiter.subject_of("mallory").to_string();
    assert_eq!(
        site.state().await["top_denied"],
        json!([{ "policy": "api", "subject": mallory, "denials": 3, "mode": "enforce" }])
    );
    assert_eq!(site.left("api", json!({ "hash": mallory })).await, 0);
}

#[tokio::test]
async fn without_a_list_of_who_is_denied_most_the_state_has_none() {
    let site = Site::of([ten("api")]).await;
    assert_eq!(site.state().await.get("top_denied"), None);
}

#[tokio::test]
async fn the_switch_turns_limiting_off_and_on() {
    let site = Site::of([Policy::new("api", Limit::sliding_log(1, HOUR))]).await;
    let is_allowed = async || {
        site.limiter
            .check("api", "alice")
            .await
            .unwrap()
            .is_allowed()
    };
    assert!(is_allowed().await);
    assert!(!is_allowed().await);
    assert_eq!(
        site.told("switch", json!({ "on": false })).await["on"],
        false
    );
    assert!(is_allowed().await);
    assert_eq!(site.state().await["on"], false);
    assert_eq!(site.told("switch", json!({ "on": true })).await["on"], true);
    assert!(!is_allowed().await);
}

#[tokio::test]
async fn a_mode_is_set_and_holds_from_the_next_request() {
    let site = Site::of([ten("api")]).await;
    for &mode in Mode::ALL {
        let wanted = json!({ "policy": "api", "mode": mode.as_str() });
        assert_eq!(site.told("mode", wanted.clone()).await, wanted);
        assert_eq!(site.limiter.mode("api"), Ok(mode));
        assert_eq!(site.state().await["policies"][0]["mode"], mode.as_str());
    }
    assert_eq!(
        site.refused("mode", json!({ "policy": "api", "mode": "on" }))
            .await,
        (
            400,
            r#"mode: got "on", expected "enforce", "shadow" or "off""#.to_owned()
        )
    );
}

#[tokio::test]
async fn a_subject_is_looked_at_and_reset() {
    let site = Site::of([ten("api")]).await;
    let _ = site.limiter.charge("api", "alice", 12).await.unwrap();
    let alice = json!({ "policy": "api", "subject": { "text": "alice" } });
    let quota = site.told("peek", alice.clone()).await;
    assert_eq!(quota["policy"], "api");
    assert_eq!(quota["capacity"], 10);
    assert_eq!(quota["remaining"], 0);
    assert_eq!(quota["banned_for_ms"], Value::Null);
    let wait = quota["reset_after_ms"].as_u64().unwrap();
    assert!((1..=3_600_000).contains(&wait), "{wait}");
    let shown = site.limiter.subject_of("alice").to_string();
    assert_eq!(quota["subject"], shown);

    let reset = site.told("reset", alice.clone()).await;
    assert_eq!(reset["remaining"], 10);
    assert_eq!(reset["reset_after_ms"], 0);
    assert_eq!(site.told("peek", alice).await["remaining"], 10);
}

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
        (json!({ "user": "7" }), Key::user("7")),
        (json!({ "user": 7 }), Key::user(7)),
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

#[tokio::test]
async fn an_address_is_the_client_that_the_extractors_see() {
    let policies = [
        ten("by 64 bits").by(PeerAddr),
        ten("by 56 bits").by(PeerAddr.ipv6_prefix(56)),
        ten("all").by((PeerAddr, Everybody)),
        ten("user").by(Extension::with(|user: &u32| Key::user(*user))),
    ];
    let site = Site::of(policies).await;
    for (from, written, by_56) in [
        ("203.0.113.9", "::ffff:203.0.113.9", "203.0.113.9"),
        ("64:ff9b::203.0.113.8", "203.0.113.8", "203.0.113.8"),
        (
            "2001:db8:1:2::7",
            "2001:db8:1:2:ffff::",
            "2001:db8:1:3::/56",
        ),
        ("fe80::1", "fe80::1", "fe80::1/56"),
    ] {
        let peer = Peer::Address(SocketAddr::new(from.parse().unwrap(), 1));
        let app = Router::new()
            .route("/", get(async || "hello"))
            .layer(RateLimitLayer::new(site.limiter.clone()))
            .layer(axum::Extension(peer))
            .layer(axum::Extension(7_u32));
        let url = support::web::serve(app).await;
        assert_eq!(reqwest::get(&url).await.unwrap().status(), 200);
        let written = json!({ "address": written });
        assert_eq!(site.left("by 64 bits", written.clone()).await, 9, "{from}");
        let by_56 = json!({ "address": by_56 });
        assert_eq!(site.left("by 56 bits", by_56).await, 9, "{from}");
        assert_eq!(site.left("all", json!([written, "everybody"])).await, 9);
    }
    assert_eq!(site.left("user", json!({ "user": 7 })).await, 6);
    assert_eq!(site.left("user", json!({ "user": "7" })).await, 10);
}

/// What a request from this address is answered.
async fn status_from(limiter: &Limiter, address: &str) -> u16 {
    let peer = Peer::Address(SocketAddr::new(address.parse().unwrap(), 1));
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::new(limiter.clone()))
        .layer(axum::Extension(peer));
    let url = support::web::serve(app).await;
    reqwest::get(&url).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_client_is_reset_by_any_of_its_addresses_whatever_the_policys_prefix() {
    let behind = |proxies: [&str; 1]| ClientAddr::x_forwarded_for(proxies).unwrap();
    let keys: [Box<dyn KeyExtractor>; 4] = [
        Box::new(PeerAddr),
        Box::new(PeerAddr.ipv6_prefix(56)),
        Box::new(behind(["10.0.0.0/8"]).ipv6_prefix(48)),
        Box::new(PeerAddr.ipv6_prefix(128)),
    ];
    for key in keys {
        let site = Site::of([Policy::new("client", Limit::sliding_log(1, HOUR)).by(key)]).await;
        let client = "2001:db8:0:7::7";
        assert_eq!(status_from(&site.limiter, client).await, 200);
        assert_eq!(status_from(&site.limiter, client).await, 429);
        assert_eq!(site.left("client", json!({ "address": client })).await, 0);
        let body = json!({ "policy": "client", "subject": { "address": client } });
        site.told("reset", body).await;
        assert_eq!(status_from(&site.limiter, client).await, 200);

        // In code.
        let address = site
            .limiter
            .canonical_address("client", client.parse().unwrap());
        let address = address.unwrap().unwrap();
        let _ = site.limiter.reset("client", address).await.unwrap();
        assert_eq!(status_from(&site.limiter, client).await, 200);
    }
}

#[tokio::test]
async fn the_part_of_a_key_that_is_an_address_is_read_as_the_policy_reads_it() {
    let by_56 = || {
        ClientAddr::x_forwarded_for(["2001:db8:f::/48"])
            .unwrap()
            .ipv6_prefix(56)
    };
    let site = Site::of([
        ten("both").by((Everybody, by_56())),
        ten("client").by(by_56()),
    ])
    .await;
    assert_eq!(status_from(&site.limiter, "2001:db8:0:7::7").await, 200);
    let both = json!(["everybody", { "address": "2001:db8:0:7::7" }]);
    assert_eq!(site.left("both", both).await, 9);
    // A trusted proxy that does not say for whom.
    assert_eq!(status_from(&site.limiter, "2001:db8:f:7::7").await, 200);
    let unattributed = json!({ "unattributed": "2001:db8:f:7::7" });
    assert_eq!(site.left("client", unattributed).await, 9);
}

#[tokio::test]
async fn an_address_is_refused_when_nobody_can_tell_how_much_of_it_is_the_key() {
    let whole = |request: &RequestHead<'_>| match request.extensions.get::<Peer>() {
        Some(Peer::Address(address)) => Some(address.ip()),
        _ => None,
    };
    let site = Site::of([ten("client").by(whole)]).await;
    assert_eq!(status_from(&site.limiter, "2001:db8::7").await, 200);
    for path in ["peek", "reset"] {
        let body = json!({ "policy": "client", "subject": { "address": "2001:db8::7" } });
        let (status, detail) = site.refused(path, body).await;
        assert_eq!(status, 400);
        assert!(
            detail.contains("2001:db8::7/128 for the whole address"),
            "{detail}"
        );
    }
    assert_eq!(
        site.left("client", json!({ "address": "2001:db8::7/128" }))
            .await,
        9
    );
    // It is one client by any prefix.
    for client in ["203.0.113.9", "fe80::7"] {
        assert_eq!(status_from(&site.limiter, client).await, 200);
        assert_eq!(site.left("client", json!({ "address": client })).await, 9);
    }
    let asked = "2001:db8::7".parse().unwrap();
    assert_eq!(site.limiter.canonical_address("client", asked), Ok(None));
    assert!(site.limiter.canonical_address("clients", asked).is_err());
}

#[tokio::test]
async fn hashes_are_those_of_a_limiter_with_a_secret_too() {
    let operator = Operator::new();
    let limiter = Limiter::builder(MemoryStore::new())
        .policy(ten("api"))
        .key_secret("a secret")
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    let _ = site.limiter.check("api", "alice").await.unwrap();
    let alice = json!({ "policy": "api", "subject": { "text": "alice" } });
    let shown = site.told("peek", alice).await["subject"].take();
    assert_ne!(
        shown,
        tower_throttle::Subject::from(&Key::from("alice")).to_string()
    );
    assert_eq!(site.left("api", json!({ "hash": shown })).await, 9);
}

#[tokio::test]
async fn what_makes_no_sense_is_answered_with_what_would() {
    let site = Site::of([ten("api")]).await;
    for (subject, said) in [
        (
            json!({ "adress": "10.0.0.1" }),
            "expected one of `everybody`",
        ),
        (
            json!({ "address": "10.0.0" }),
            r#"address: got "10.0.0", expected an address as"#,
        ),
        (
            json!({ "address": "10.0.0.1/24" }),
            "expected an address as",
        ),
        (json!({ "address": "2001:db8::/31" }), "32 to 128 bits"),
        (json!({ "address": 7 }), "invalid type"),
        (json!({ "hash": "9d15" }), "32 hexadecimal digits"),
        (
            json!([{ "hash": "0".repeat(32) }]),
            "unknown variant `hash`",
        ),
        (
            json!({ "header": { "name": "x user", "value": "" } }),
            "the name of a header",
        ),
        (
            json!({ "header": { "name": "x-user" } }),
            "missing field `value`",
        ),
        (json!({ "user": 7.5 }), "a text or a whole number"),
        (json!([]), "at least one part"),
        (json!(null), "subject: "),
        (json!("everyone"), "unknown variant `everyone`"),
    ] {
        let body = json!({ "policy": "api", "subject": subject });
        let (status, detail) = site.refused("peek", body).await;
        assert_eq!(status, 400, "{subject}");
        assert!(detail.starts_with("subject: "), "{detail}");
        assert!(detail.contains(said), "{detail}");
    }
    for (path, body) in [
        ("switch", json!({ "on": "no" })),
        ("switch", json!({ "on": false, "for": "1h" })),
        ("mode", json!({ "policy": "api" })),
        ("peek", json!({ "policy": "api" })),
        ("reset", json!([])),
    ] {
        let (status, detail) = site.refused(path, body).await;
        assert_eq!(status, 400);
        assert!(detail.starts_with("body: "), "{detail}");
    }
    assert!(site.limiter.is_on());
}

#[tokio::test]
async fn a_policy_that_there_is_not_is_not_found() {
    let site = Site::of([ten("api")]).await;
    for (path, body) in [
        ("mode", json!({ "policy": "apj", "mode": "off" })),
        ("peek", json!({ "policy": "apj", "subject": "everybody" })),
        ("reset", json!({ "policy": "apj", "subject": "nobody" })),
    ] {
        let (status, detail) = site.refused(path, body).await;
        assert_eq!(status, 404, "{path}");
        assert!(detail.contains("\"apj\""), "{detail}");
    }
}

#[tokio::test]
async fn counts_go_with_a_policys_name_when_the_rules_are_replaced() {
    let site = Site::of([ten("api"), ten("old")]).await;
    let _ = site.limiter.check("api", "alice").await.unwrap();
    let _ = site.limiter.check("old", "alice").await.unwrap();
    let rules = Rules::new().policies([ten("new"), ten("api")]);
    site.limiter.replace(rules).unwrap();
    let state = site.state().await;
    let each = state["policies"].as_array().unwrap().iter();
    let each = each.map(|policy| (&policy["name"], &policy["decisions"]["allowed"]));
    assert_eq!(
        each.collect::<Vec<_>>(),
        [(&json!("new"), &json!(0)), (&json!("api"), &json!(1))]
    );
    assert_eq!(state["decisions"]["allowed"], 2);
}

#[tokio::test]
async fn pages_of_other_sites_cannot_press_the_buttons() {
    let site = Site::of([ten("api")]).await;
    let url = format!("{}/switch", site.url);
    let off = r#"{"on":false}"#;
    let post = || Client::new().post(&url).body(off);
    // All that a form can say, and nothing at all.
    for media_type in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=application/json"),
    ] {
        let mut request = post();
        if let Some(media_type) = media_type {
            request = request.header("content-type", media_type);
        }
        let (status, detail) = problem(request.send().await.unwrap()).await;
        assert_eq!(status, 415);
        assert!(detail.contains("expected application/json"), "{detail}");
    }
    for (from, expected) in [
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 200),
        ("none", 200),
    ] {
        let request = post().header("content-type", "Application/JSON; charset=utf-8");
        let answer = request.header("sec-fetch-site", from).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{from}");
        assert_eq!(site.limiter.is_on(), expected == 403, "{from}");
        site.limiter.turn_on();
    }
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 405);
}

#[tokio::test]
async fn what_is_too_long_or_nowhere_is_a_problem_too() {
    let site = Site::of([ten("api")]).await;
    let long = json!({ "policy": "a".repeat(20_000), "mode": "off" });
    assert_eq!(site.refused("mode", long).await.0, 413);
    let nowhere = reqwest::get(format!("{}/limits", site.url)).await.unwrap();
    let (status, detail) = problem(nowhere).await;
    assert_eq!(status, 404);
    assert!(detail.contains("/state"), "{detail}");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_as_such() {
    for on_failure in [
        FailureMode::Allow,
        FailureMode::Deny,
        FailureMode::Local { share: 0.5 },
    ] {
        let policy = ten("api").on_store_failure(on_failure);
        let limiter = Limiter::new(unreachable(), [policy]).unwrap();
        let site = Site::about(limiter, Operator::new()).await;
        for (path, said) in [
            ("peek", "nothing is known of the subject"),
            ("reset", "it is not known whether the subject was reset"),
        ] {
            let body = json!({ "policy": "api", "subject": "everybody" });
            let (status, detail) = site.refused(path, body).await;
            assert_eq!(status, 503);
            assert!(detail.starts_with("the store "), "{detail}");
            assert!(detail.contains(said), "{detail}");
        }
    }
}

#[tokio::test]
async fn the_page_is_there_with_and_without_a_slash_and_may_run_only_itself() {
    let site = Site::of([ten("api")]).await;
    for url in [site.url.clone(), format!("{}/", site.url)] {
        let page = reqwest::get(url).await.unwrap();
        assert_eq!(page.status(), 200);
        assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
        assert_eq!(page.headers()["cache-control"], "no-store");
        assert_eq!(page.headers()["x-content-type-options"], "nosniff");
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

/// What docs/operations.md has for the shell, of this subject and this server.
fn reset_from_the_shell(redis: &Redis, subject: &str) {
    let page = include_str!("../docs/operations.md");
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
    let limiter = Limiter::builder(redis.store().await)
        .policies(names.map(|name| ten(name).penalty(penalty)))
        .policy(Policy::new("burst", Limit::gcra(10, HOUR)).group("per client, in all"))
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
    let shown = site.told("peek", alice).await["subject"].take();
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
