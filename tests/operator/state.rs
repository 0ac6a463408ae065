//! What the state shows: policies, their decisions, the store, the most denied subjects.

use serde_json::{Value, json};
use tower_throttle::{
    AccessList, DAY, FailureMode, HOUR, Header, Limit, Limiter, MINUTE, MemoryStore, Mode,
    OnMissingKey, Operator, PeerAddr, Penalty, Policy, Prefetch, RequestHead, Route, Rules,
    TopDenied,
};

use crate::{Site, status_from, ten, unreachable};
use support::http_store::{TestStore, Trip};
#[cfg(feature = "config")]
use support::web::GENEROUS;

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
    // Its one permit is taken, so nothing is left.
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
async fn the_state_has_all_settings_of_a_policy() {
    let login = Policy::new("login", Limit::sliding_log(5, HOUR))
        .by((PeerAddr, Header::new("X-User")))
        .on([Route::post("/login"), Route::any("/v1/{*rest}")])
        .on_store_failure(FailureMode::Local { share: 0.5 })
        .penalty(Penalty::after(10, MINUTE, HOUR).doubling_up_to(DAY));
    let own = ten("own").by(|_: &RequestHead<'_>| Some(7));
    let site = Site::of([login, own.on(|_: &RequestHead<'_>| true)]).await;
    let state = site.state().await;
    let told = |at: usize| {
        let fields = ["key", "routes", "on_store_failure", "penalty", "subject"];
        fields.map(|field| state["policies"][at][field].clone())
    };
    let address = json!({ "address": "..." });
    let header = json!({ "header": { "name": "x-user", "value": "..." } });
    assert_eq!(
        told(0),
        [
            json!("client address and header x-user"),
            json!(["POST /login, any /v1/{*rest}"]),
            json!("local, 50 %"),
            json!("10 denials in any 1 min ban for 1 h, doubling up to 1 d"),
            json!([address, header]),
        ]
    );
    // Of what is the application's own, nothing is made up.
    let [key, routes, on_store_failure, penalty, subject] = told(1);
    assert!(key.is_string() && routes.as_array().unwrap().len() == 1);
    assert_eq!(on_store_failure, "allow");
    assert_eq!([penalty, subject], [Value::Null, Value::Null]);
    assert_ne!(state["host"], "");
    assert_eq!(state["config"], Value::Null);
}

/// Each mode of a policy beside one that is in shadow, and what is said while its store is down.
#[tokio::test]
async fn the_state_has_the_current_kill_switch() {
    let enforcement = async |site: &Site| {
        let mut state = site.state().await;
        let told = state["enforcement"].take();
        let reason = told["reason"].as_str().unwrap_or_default().to_owned();
        (told["status"].as_str().unwrap().to_owned(), reason)
    };
    for (mode, status, reason) in [
        (FailureMode::Allow, "none", "1 policy lets everything pass"),
        (FailureMode::Deny, "partial", "1 policy refuses everything"),
        (
            FailureMode::Local { share: 0.5 },
            "partial",
            "limits in this process",
        ),
    ] {
        let operator = Operator::new();
        let limiter = Limiter::builder(
            unreachable(),
            [
                ten("api").on_store_failure(mode),
                ten("trial").mode(Mode::Shadow),
            ],
        )
        .observe(operator.clone())
        .build()
        .unwrap();
        let site = Site::about(limiter, operator).await;
        assert_eq!(enforcement(&site).await, ("full".to_owned(), String::new()));
        for _ in 0..20 {
            let _ = site.limiter.check("api", "alice").await.unwrap();
        }
        let told = enforcement(&site).await;
        assert!(told.0 == status && told.1.contains(reason), "{told:?}");
    }
    let site = Site::of([ten("api")]).await;
    for (change, reason) in [
        (json!({ "on": false }), "turned off"),
        (json!({ "policy": "api", "mode": "shadow" }), "shadow"),
        (
            json!({ "policy": "api", "mode": "enforce", "enforce": "0%" }),
            "0%",
        ),
    ] {
        let path = if change.get("on").is_some() {
            "switch"
        } else {
            "mode"
        };
        site.post_ok(path, change).await;
        let told = enforcement(&site).await;
        assert!(told.0 == "none" && told.1.contains(reason), "{told:?}");
        site.limiter.turn_on();
    }
    // For some keys it is enforced.
    let some = json!({ "policy": "api", "mode": "enforce", "enforce": "1%" });
    site.post_ok("mode", some).await;
    assert_eq!(enforcement(&site).await.0, "full");
    let site = Site::of([]).await;
    assert_eq!(enforcement(&site).await.0, "none");
}

#[cfg(feature = "config")]
#[tokio::test]
async fn the_state_has_the_time_and_error_of_the_last_reload() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("limits.toml");
    // At once, so that no half of it is read.
    let write = |text: &str| {
        let new = directory.path().join("new.toml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &path).unwrap();
    };
    write("store = \"memory\"\npolicy = []");
    let operator = Operator::new();
    let (sender, mut reloads) = tokio::sync::mpsc::unbounded_channel();
    let file = tower_throttle::ConfigFile::new(&path)
        .observe(operator.clone())
        .on_reload(move |outcome| {
            let _ = sender.send(outcome.is_ok());
        });
    let config = file.open().await.unwrap();
    let site = Site::about(config.limiter(), operator).await;
    let told = site.state().await["config"].take();
    assert!(
        told["read_ago_ms"].is_u64() && told["error"].is_null(),
        "{told}"
    );
    write("store = \"memory\"\npolicies = []");
    let reload = tokio::time::timeout(GENEROUS, reloads.recv());
    assert_eq!(reload.await.unwrap(), Some(false));
    let told = site.state().await["config"].take();
    assert!(told["error"].as_str().unwrap().contains("line 2"), "{told}");
}

#[tokio::test]
async fn the_state_tells_groups_prefetch_and_batched_decisions() {
    let operator = Operator::new();
    let limit = Limit::fixed_window(100_000, MINUTE);
    let limiter = Limiter::builder(
        TestStore::new(Trip::Short),
        [
            Policy::new("hot", limit).prefetch(Prefetch::new().share(0.5)),
            Policy::new("grouped", limit).group("client"),
        ],
    )
    .observe(operator.clone())
    .timeout(MINUTE)
    .build()
    .unwrap();
    let site = Site::about(limiter, operator).await;
    let mut prefetched = 0;
    for _ in 0..1_000 {
        let decision = site.limiter.check("hot", "everybody").await.unwrap();
        prefetched += u64::from(decision.is_prefetched());
        let _ = site.limiter.check("grouped", "everybody").await.unwrap();
    }
    assert!(prefetched > 100, "{prefetched}");
    let policies = site.state().await["policies"].take();
    let told = |at: usize| ["group", "prefetch", "prefetched"].map(|field| &policies[at][field]);
    let prefetch = json!("at most 50 % for 1 s");
    assert_eq!(told(0), [&Value::Null, &prefetch, &json!(prefetched)]);
    assert_eq!(told(1), [&json!("client"), &Value::Null, &json!(0)]);
    for policy in 0..2 {
        assert_eq!(policies[policy]["decisions"]["allowed"], 1_000);
    }
}

#[tokio::test]
async fn the_state_tells_when_a_policy_settles_its_cost() {
    let site = Site::of([
        ten("tokens").cost(5).settle_at_end(|end| end.used()),
        ten("calls").count_if_at_end(|_| true),
        ten("rows").cost(5).settle(|_| 7),
        ten("login").count_if(|_| true),
        ten("cents").cost_by(|_: &RequestHead<'_>| 5).settle(|_| 7),
        ten("api").cost(5),
    ])
    .await;
    let policies = site.state().await["policies"].take();
    let told = policies.as_array().unwrap().iter();
    assert_eq!(
        told.map(|policy| policy["settle"].as_str())
            .collect::<Vec<_>>(),
        [
            Some("at the end of the response, estimate 5"),
            Some("at the end of the response"),
            Some("by the head of the response, estimate 5"),
            Some("by the head of the response"),
            Some("by the head of the response"),
            None,
        ]
    );
}

#[tokio::test]
async fn requests_decided_without_the_store_are_counted_by_reason() {
    let operator = Operator::new();
    let denied = AccessList::new()
        .addresses(PeerAddr, ["127.0.0.1"])
        .unwrap();
    let limiter = Limiter::builder(MemoryStore::new(), Rules::new([ten("api")]).deny(denied))
        .observe(operator.clone())
        .build()
        .unwrap();
    assert_eq!(status_from(&limiter, "127.0.0.1").await, 403);
    let site = Site::about(limiter, operator).await;
    assert_eq!(site.state().await["refusals"]["listed"], 1);
}

#[tokio::test]
async fn refusals_in_shadow_are_counted_apart() {
    let operator = Operator::new();
    let policy = ten("api").by(Header::new("x-user"));
    let limiter = Limiter::builder(
        MemoryStore::new(),
        [policy.on_missing_key(OnMissingKey::Reject)],
    )
    .observe(operator.clone())
    .build()
    .unwrap();
    let site = Site::about(limiter.clone(), operator).await;
    for (mode, status) in [(Mode::Shadow, 200), (Mode::Enforce, 400)] {
        limiter.set_mode("api", mode).unwrap();
        assert_eq!(status_from(&limiter, "127.0.0.1").await, status);
        let state = site.state().await;
        assert_eq!(state["shadow_refusals"]["missing_key"], 1);
        let refused = u8::from(status == 400);
        assert_eq!(state["refusals"]["missing_key"], refused);
    }
}

#[tokio::test]
async fn a_store_in_memory_has_no_round_trips() {
    let site = Site::of([ten("api")]).await;
    assert_eq!(
        site.state().await["store"],
        json!({
            "name": "the memory of this process", "breaker": "closed", "outage": null, "answers": 0, "failures": 0,
            "answering_us": 0, "last_failure": null,
        })
    );
}

#[tokio::test]
async fn a_store_that_is_down_shows_in_the_state() {
    let operator = Operator::new();
    let limiter = Limiter::builder(unreachable(), [ten("api")])
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
    assert!(
        store["name"]
            .as_str()
            .unwrap()
            .starts_with("Redis at 127.0.0.1:"),
        "{store}"
    );
    assert!(store["outage"]["duration_ms"].is_u64(), "{store}");
    assert!(
        store["outage"]["uncounted"].as_u64().unwrap() > 0,
        "{store}"
    );
    assert_eq!(store["answers"], store["failures"]);
    assert!(store["failures"].as_u64().unwrap() > 0, "{store}");
    assert!(store["last_failure"]["ago_ms"].is_u64());
    let reason = store["last_failure"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the store "), "{reason}");
    assert_eq!(state["decisions"]["failed_open"], 20);
}

#[tokio::test]
async fn the_list_of_the_most_denied_has_hashes_that_can_be_looked_up() {
    let top = TopDenied::new(10);
    let operator = Operator::new().top_denied(top.clone());
    let limiter = Limiter::builder(MemoryStore::new(), [ten("api")])
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
        json!([{ "policy": "api", "subject": mallory, "denials": 3, "overestimate": 0, "mode": "enforce" }])
    );
    assert_eq!(site.left("api", json!({ "hash": mallory })).await, 0);
}

/// The subjects with the highest counts may have been denied once: they took their counts over from
/// others.
#[tokio::test]
async fn made_up_subjects_are_listed_behind_those_denied_more_often() {
    let top = TopDenied::new(10);
    let operator = Operator::new().top_denied(top.clone());
    let once = |name| Policy::new(name, Limit::sliding_log(1, HOUR));
    let limiter = Limiter::builder(MemoryStore::new(), [once("api"), once("login")])
        .observe(operator.clone())
        .observe(top)
        .build()
        .unwrap();
    let denied = async |policy, subject: &str, times| {
        for _ in 0..=times {
            let _ = limiter.check(policy, subject).await.unwrap();
        }
    };
    denied("login", "guesser", 3).await;
    for made_up in 0..100 {
        denied("api", &made_up.to_string(), 1).await;
    }
    let guesser = limiter.subject_of("guesser").to_string();
    let site = Site::about(limiter.clone(), operator).await;
    let list = &site.state().await["top_denied"];
    assert_eq!(
        list[0],
        json!({
            "policy": "login", "subject": guesser, "denials": 3, "overestimate": 0,
            "mode": "enforce",
        })
    );
    assert!(list[1]["denials"].as_u64() > Some(3), "{list}");
}

#[tokio::test]
async fn without_top_denied_the_state_has_no_list() {
    let site = Site::of([ten("api")]).await;
    assert_eq!(site.state().await.get("top_denied"), None);
}

#[tokio::test]
async fn counts_go_with_a_policys_name_when_the_rules_are_replaced() {
    let site = Site::of([ten("api"), ten("old")]).await;
    let _ = site.limiter.check("api", "alice").await.unwrap();
    let _ = site.limiter.check("old", "alice").await.unwrap();
    let rules = Rules::new([ten("new"), ten("api")]);
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
