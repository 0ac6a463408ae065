//! The list of what was changed through the router.

use serde_json::{Value, json};
use tower_throttle::{
    Limiter, ManualClock, MemoryStore, Micros, Mode, Operator, SECOND, extractor,
};

use crate::{Site, ten};

/// The changes without their times.
async fn changes(site: &Site) -> Vec<[Value; 5]> {
    let state = site.state().await;
    let changes = state["changes"].as_array().unwrap().iter();
    let fields = ["what", "of", "from", "to", "by"];
    changes
        .map(|change| fields.map(|field| change[field].clone()))
        .collect()
}

#[tokio::test]
async fn changes_are_listed_the_latest_first_with_both_values() {
    let clock = ManualClock::at(Micros::new(1_700_000_000_000_000));
    let operator = Operator::new().clock(clock.clone());
    let limiter = Limiter::new(MemoryStore::new(), [ten("api")]).unwrap();
    let site = Site::about(limiter, operator).await;
    site.post_ok("switch", json!({ "on": false })).await;
    clock.advance(SECOND);
    site.post_ok("switch", json!({ "on": true })).await;
    site.post_ok("mode", json!({ "policy": "api", "mode": "shadow" }))
        .await;
    let alice = json!({ "policy": "api", "subject": { "text": "alice" } });
    let _ = site.limiter.check("api", "alice").await.unwrap();
    site.post_ok("reset", alice).await;
    let block = json!({ "text": "alice" });
    let block = json!({ "policy": "api", "subject": block, "for_secs": 60, "reason": "a\nb" });
    site.post_ok("block", block).await;
    site.post_ok("unblock", json!({ "id": 1 })).await;
    // What changes nothing is none, nor is what somebody changes elsewhere.
    site.post_ok("mode", json!({ "policy": "api", "mode": "shadow" }))
        .await;
    site.post_ok("switch", json!({ "on": true })).await;
    site.limiter.set_mode("api", Mode::Off).unwrap();
    let alice = format!("api: {}", site.limiter.subject_of("alice"));
    let blocked = r"blocked for 1 min: a\nb";
    let expected = [
        ("unblock", json!(alice), blocked, "not blocked"),
        ("block", json!(alice), "not blocked", blocked),
        ("reset", json!(alice), "9 left", "10 left"),
        ("mode", json!("api"), "enforce", "shadow"),
        ("switch", Value::Null, "off", "on"),
        ("switch", Value::Null, "on", "off"),
    ];
    let expected =
        expected.map(|(what, of, from, to)| [json!(what), of, json!(from), json!(to), Value::Null]);
    assert_eq!(changes(&site).await, expected);
    let state = site.state().await;
    assert_eq!(state["changes"][5]["at_ms"], 1_700_000_000_000_u64);
    assert_eq!(state["changes"][4]["at_ms"], 1_700_000_001_000_u64);
}

#[tokio::test]
async fn who_changed_it_is_what_the_application_reads_from_the_request() {
    let operator = Operator::new().actor(extractor(|request| {
        let user = request.headers.get("x-forwarded-user")?;
        Some(user.to_str().ok()?.to_owned())
    }));
    let limiter = Limiter::new(MemoryStore::new(), [ten("api")]).unwrap();
    let site = Site::about(limiter, operator).await;
    let long = "b".repeat(500);
    for (user, path, body) in [
        (Some("alice"), "switch", json!({ "on": false })),
        (
            Some(&*long),
            "mode",
            json!({ "policy": "api", "mode": "off" }),
        ),
        (None, "switch", json!({ "on": true })),
    ] {
        let post = reqwest::Client::new().post(format!("{}/{path}", site.url));
        let post = post.json(&body);
        let post = match user {
            Some(user) => post.header("x-forwarded-user", user),
            None => post,
        };
        assert_eq!(post.send().await.unwrap().status(), 200);
    }
    let by: Vec<_> = changes(&site)
        .await
        .into_iter()
        .map(|[.., by]| by)
        .collect();
    assert_eq!(by, [Value::Null, json!(long[..100]), json!("alice")]);
}

#[tokio::test]
async fn the_last_hundred_changes_are_kept() {
    let site = Site::of([ten("api")]).await;
    for _ in 0..60 {
        for mode in ["off", "enforce"] {
            site.post_ok("mode", json!({ "policy": "api", "mode": mode }))
                .await;
        }
    }
    site.post_ok("switch", json!({ "on": false })).await;
    let changes = changes(&site).await;
    assert_eq!(changes.len(), 100);
    assert_eq!(changes[0][0], "switch");
    assert_eq!(changes[99][3], "enforce");
}
