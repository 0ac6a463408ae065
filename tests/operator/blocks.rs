//! Clients that operators block for a time, by their keys and by their addresses.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_throttle::{
    AccessList, ChangeEvent, Extension, HOUR, Header, Key, Limiter, MINUTE, ManualClock,
    MemoryStore, Mode, Observer, Operator, Outcome, PeerAddr, Percent, Policy, Rules, SECOND,
};

use crate::{Site, problem, status_from, ten};

/// Whose blocks end by a clock that stands still.
async fn site(policies: impl IntoIterator<Item = Policy>) -> (Site, ManualClock) {
    let clock = ManualClock::new();
    let operator = Operator::new().clock(clock.clone());
    let operator = operator.client_address(PeerAddr).unwrap();
    let limiter = Limiter::builder(MemoryStore::new(), policies)
        .observe(operator.clone())
        .build()
        .unwrap();
    (Site::about(limiter, operator).await, clock)
}

fn by_address(text: &str) -> Value {
    json!({ "address": text, "for_secs": 60, "reason": "scraping" })
}

fn of_user(user: u64) -> Value {
    json!({ "policy": "api", "subject": { "user": user }, "for_secs": 60, "reason": "scraping" })
}

fn api() -> Policy {
    ten("api").by(Extension::with(|user: &u64| *user))
}

#[tokio::test]
async fn a_blocked_key_is_refused_from_the_next_request_until_its_time_is_over() {
    let (site, clock) = site([api()]).await;
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    let _ = site.post_ok("block", of_user(8)).await;
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    let block = site.post_ok("block", of_user(7)).await;
    let subject = site.limiter.subject_of(Key::user(7)).to_string();
    let shown = json!({
        "id": 2, "address": null, "policy": "api", "subject": subject, "reason": "scraping",
        "by": null, "left_ms": 60_000,
    });
    assert_eq!(block, shown);
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
    clock.advance(59 * SECOND);
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
    let state = site.state().await;
    assert_eq!(state["blocks"][1]["left_ms"], 1_000);
    assert_eq!(state["refusals"]["listed"], 2);
    // Nothing was counted.
    assert_eq!(site.left("api", json!({ "user": 7 })).await, 8);
    clock.advance(SECOND);
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    assert_eq!(site.state().await["blocks"], json!([]));
}

#[tokio::test]
async fn a_blocked_network_is_refused_and_others_are_not() {
    let (site, clock) = site([ten("api")]).await;
    site.post_ok("block", by_address("203.0.113.0/24")).await;
    site.post_ok("block", by_address(" 2001:db8::/32 ")).await;
    for (address, expected) in [
        ("203.0.113.9", 403),
        ("::ffff:203.0.113.9", 403),
        ("203.0.114.9", 200),
        ("2001:db8:7::1", 403),
        ("2001:db9::1", 200),
    ] {
        let status = status_from(&site.limiter, address).await;
        assert_eq!(status, expected, "{address}");
    }
    let blocks = site.state().await["blocks"].take();
    assert_eq!(blocks[1]["address"], "2001:db8::/32");
    // By address, whatever the modes of the policies.
    site.limiter.set_mode("api", Mode::Off).unwrap();
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
    clock.advance(MINUTE);
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
}

#[tokio::test]
async fn a_block_is_lifted_once() {
    let (site, _) = site([api()]).await;
    let block = site.post_ok("block", of_user(7)).await;
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
    let id = json!({ "id": block["id"] });
    assert_eq!(site.post_ok("unblock", id.clone()).await, block);
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    let (status, detail) = site.refused("unblock", id).await;
    assert_eq!(
        (status, &*detail),
        (404, "id: there is no block 1; it may be over")
    );
}

#[tokio::test]
async fn a_second_block_of_a_client_replaces_the_first() {
    let (site, clock) = site([api()]).await;
    for (first, second) in [
        (
            of_user(7),
            json!({ "hash": site.limiter.subject_of(Key::user(7)).to_string() }),
        ),
        (by_address("203.0.113.9"), json!("203.0.113.9/32")),
    ] {
        let first = site.post_ok("block", first).await;
        let mut longer = json!({ "for_secs": 120, "reason": "still scraping" });
        let fields = longer.as_object_mut().unwrap();
        if second.is_string() {
            fields.insert("address".to_owned(), second);
        } else {
            fields.insert("policy".to_owned(), json!("api"));
            fields.insert("subject".to_owned(), second);
        }
        let second = site.post_ok("block", longer).await;
        assert_ne!(first["id"], second["id"]);
        let blocks = site.state().await["blocks"].take();
        assert_eq!(blocks, json!([second]));
        clock.advance(MINUTE);
        assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
        clock.advance(MINUTE);
        assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    }
}

#[tokio::test]
async fn blocks_stay_when_rules_and_lists_are_replaced_and_end_beside_them() {
    let (site, clock) = site([api()]).await;
    site.post_ok("block", by_address("203.0.113.9")).await;
    site.limiter.replace([api(), ten("new")]).unwrap();
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
    let denied = || {
        AccessList::new()
            .addresses(PeerAddr, ["198.51.100.7"])
            .unwrap()
    };
    site.limiter.set_denied(denied());
    for address in ["203.0.113.9", "198.51.100.7"] {
        assert_eq!(status_from(&site.limiter, address).await, 403, "{address}");
    }
    site.limiter
        .replace(Rules::new([api()]).deny(denied()))
        .unwrap();
    assert_eq!(site.post_ok("block", of_user(8)).await["id"], 2);
    clock.advance(MINUTE);
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    assert_eq!(status_from(&site.limiter, "198.51.100.7").await, 403);
}

#[tokio::test]
async fn a_block_holds_outside_of_http_and_counts_of_an_allowed_client_too() {
    let (site, _) = site([api()]).await;
    let allowed = AccessList::new()
        .addresses(PeerAddr, ["203.0.113.9"])
        .unwrap();
    site.limiter.set_allowed(allowed);
    site.post_ok("block", of_user(7)).await;
    let decision = site.limiter.check("api", Key::user(7)).await.unwrap();
    assert_eq!(decision.outcome(), Outcome::Refused);
    assert!(
        site.limiter
            .check("api", Key::user(8))
            .await
            .unwrap()
            .is_allowed()
    );
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 403);
    // The switch turns everything off.
    site.limiter.turn_off();
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
}

/// The sizes of the deny list that it is told.
#[derive(Clone, Default)]
struct Sizes(Arc<Mutex<Vec<[usize; 2]>>>);

impl Observer for Sizes {
    fn on_change(&self, event: &ChangeEvent) {
        if let ChangeEvent::AccessList { from, to, .. } = event {
            self.0.lock().unwrap().push([*from, *to]);
        }
    }
}

#[tokio::test]
async fn observers_are_told_of_a_block_and_of_its_end() {
    let (clock, sizes) = (ManualClock::new(), Sizes::default());
    let operator = Operator::new().clock(clock.clone());
    let limiter = Limiter::builder(MemoryStore::new(), [api()])
        .observe(sizes.clone())
        .build()
        .unwrap();
    let site = Site::about(limiter, operator).await;
    site.post_ok("block", of_user(7)).await;
    site.post_ok("block", of_user(8)).await;
    clock.advance(MINUTE);
    for _ in 0..3 {
        assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    }
    assert_eq!(*sizes.0.lock().unwrap(), [[0, 1], [1, 2], [2, 0]]);
}

#[tokio::test]
async fn a_nonsensical_block_is_answered_with_the_field_that_is_wrong() {
    let (site, _) = site([api(), ten("all")]).await;
    let with = |mut body: Value, field: &str, value: Value| {
        body[field] = value;
        body
    };
    let user = || of_user(7);
    let client = || by_address("203.0.113.9");
    for (body, status, said) in [
        (
            with(user(), "for_secs", json!(0)),
            400,
            "for_secs: got 0, expected 1 to 604800",
        ),
        (
            with(user(), "for_secs", json!(604_801)),
            400,
            "for_secs: got 604801",
        ),
        (
            with(user(), "for_secs", json!("1h")),
            400,
            "body: invalid type",
        ),
        (
            with(user(), "reason", json!("  ")),
            400,
            "reason: got 0 characters, expected 1 to 200",
        ),
        (
            with(user(), "reason", json!("x".repeat(201))),
            400,
            "reason: got 201 characters",
        ),
        (
            with(user(), "address", json!("203.0.113.9")),
            400,
            "address: expected either",
        ),
        (
            with(user(), "subject", Value::Null),
            400,
            "address: expected either",
        ),
        (
            with(user(), "subject", json!({ "text": "x" })),
            400,
            "subject: got what no request",
        ),
        (with(user(), "policy", json!("apj")), 404, "\"apj\""),
        (
            with(user(), "until", json!(7)),
            400,
            "body: unknown field `until`",
        ),
        (
            with(client(), "address", json!("203.0.113.9/24")),
            400,
            "address: got \"203.0.113.9/24\"",
        ),
        (
            with(client(), "address", json!("<b>")),
            400,
            "address: got \"<b>\": expected a range",
        ),
        (
            json!({ "address": "203.0.113.9" }),
            400,
            "body: missing field `for_secs`",
        ),
        (json!(true), 400, r#"expected {"policy": "api""#),
        (
            json!({ "policy": "all", "subject": "everybody", "for_secs": 60, "reason": "x" }),
            400,
            "subject: everybody would be blocked",
        ),
    ] {
        let (got, detail) = site.refused("block", body.clone()).await;
        assert_eq!(got, status, "{body}");
        assert!(detail.contains(said), "{body}: {detail}");
    }
    for body in [json!({}), json!({ "id": "x" }), json!({ "id": -1 })] {
        assert_eq!(site.refused("unblock", body).await.0, 400);
    }
    let state = site.state().await;
    assert_eq!(
        [&state["blocks"], &state["changes"]],
        [&json!([]), &json!([])]
    );
}

#[tokio::test]
async fn addresses_are_blocked_only_where_the_router_knows_how_to_read_them() {
    let policy = ten("client").by(PeerAddr);
    let site = Site::of([policy]).await;
    assert_eq!(site.state().await["blocks_addresses"], false);
    let (status, detail) = site.refused("block", by_address("203.0.113.9")).await;
    assert_eq!(status, 400);
    assert!(detail.starts_with("address: "), "{detail}");
    assert!(detail.contains("Operator::client_address"), "{detail}");
    // As a key, the address is as the policy has it.
    let subject = json!({ "address": "2001:db8:0:7::7" });
    let body = json!({ "policy": "client", "subject": subject, "for_secs": 60, "reason": "x" });
    site.post_ok("block", body).await;
    assert_eq!(status_from(&site.limiter, "2001:db8:0:7:9::9").await, 403);
    assert_eq!(status_from(&site.limiter, "2001:db8:0:8::7").await, 200);
}

#[tokio::test]
async fn a_hundred_blocks_are_enough() {
    let (site, clock) = site([api()]).await;
    for user in 100..200 {
        site.post_ok("block", of_user(user)).await;
    }
    let (status, detail) = site.refused("block", of_user(7)).await;
    assert_eq!(status, 409);
    assert!(detail.contains("100 blocks already"), "{detail}");
    // One of these is replaced; and there is room again when they are over.
    site.post_ok("block", of_user(100)).await;
    clock.advance(HOUR);
    site.post_ok("block", of_user(7)).await;
    assert_eq!(site.state().await["blocks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_that_cannot_be_read_may_hide_a_blocked_one() {
    let (site, _) = site([ten("api").by(Header::new("x-user"))]).await;
    assert_eq!(status_from(&site.limiter, "203.0.113.9").await, 200);
    let app = axum::Router::new()
        .route("/", axum::routing::get(async || "hello"))
        .layer(tower_throttle::RateLimitLayer::new(site.limiter.clone()));
    let url = support::web::serve(app).await;
    let twice = async || {
        let get = reqwest::Client::new().get(&url);
        let get = get.header("x-user", "bob").header("x-user", "mallory");
        get.send().await.unwrap().status().as_u16()
    };
    assert_eq!(twice().await, 200);
    let mallory = json!({ "header": { "name": "x-user", "value": "mallory" } });
    let body = json!({ "policy": "api", "subject": mallory, "for_secs": 60, "reason": "x" });
    site.post_ok("block", body).await;
    assert_eq!(twice().await, 400);
}

#[tokio::test]
async fn pages_of_other_sites_block_nobody() {
    let (site, _) = site([api()]).await;
    site.post_ok("block", of_user(8)).await;
    for (path, body) in [("block", of_user(7)), ("unblock", json!({ "id": 1 }))] {
        let post = reqwest::Client::new().post(format!("{}/{path}", site.url));
        let post = post.json(&body).header("origin", "http://evil.example");
        let (status, detail) = problem(post.send().await.unwrap()).await;
        assert_eq!(status, 403, "{path}");
        assert!(detail.starts_with("origin: "), "{detail}");
    }
    let blocks = site.state().await["blocks"].take();
    assert_eq!(blocks.as_array().unwrap().len(), 1);
    assert_eq!(blocks[0]["id"], 1);
}

/// Otherwise the change would wait for the block's end, which is a change, too.
#[tokio::test]
async fn a_policy_can_be_changed_as_soon_as_a_block_is_over() {
    let (site, clock) = site([api()]).await;
    for share in [5, 10] {
        site.post_ok("block", of_user(7)).await;
        clock.advance(60 * SECOND);
        let share = Percent::new(share).unwrap();
        site.limiter.set_enforced_for("api", share).unwrap();
        site.post_ok("block", of_user(7)).await;
        clock.advance(60 * SECOND);
        site.limiter.set_mode("api", Mode::Enforce).unwrap();
        assert_eq!(site.limiter.summary("api").unwrap().enforced_for, share);
    }
}
