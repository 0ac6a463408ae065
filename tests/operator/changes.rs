//! What operators change at run time: the switch, modes, what a subject has left.

use serde_json::{Value, json};
use tower_throttle::{HOUR, Limit, Mode, Policy};

use crate::{Site, ten};

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
        site.post_ok("switch", json!({ "on": false })).await["on"],
        false
    );
    assert!(is_allowed().await);
    assert_eq!(site.state().await["on"], false);
    assert_eq!(
        site.post_ok("switch", json!({ "on": true })).await["on"],
        true
    );
    assert!(!is_allowed().await);
}

#[tokio::test]
async fn a_mode_is_set_and_holds_from_the_next_request() {
    let site = Site::of([ten("api")]).await;
    for &mode in Mode::ALL {
        let wanted = json!({ "policy": "api", "mode": mode.as_str() });
        let answer = json!({ "policy": "api", "mode": mode.as_str(), "enforce": "100%" });
        assert_eq!(site.post_ok("mode", wanted).await, answer);
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
async fn a_share_is_set_together_with_a_mode_and_shown() {
    let site = Site::of([ten("api")]).await;
    let shown = async || site.state().await["policies"][0]["enforced_for"].clone();
    assert_eq!(shown().await, "100%");
    let wanted = json!({ "policy": "api", "mode": "enforce", "enforce": "5%" });
    assert_eq!(site.post_ok("mode", wanted.clone()).await, wanted);
    assert_eq!(shown().await, "5%");
    let change = &site.state().await["changes"][0];
    assert_eq!(
        (&change["from"], &change["to"]),
        (&json!("enforce"), &json!("enforce 5%"))
    );
    // A mode alone leaves it, and the answer says so.
    let shadow = json!({ "policy": "api", "mode": "shadow" });
    let answer = site.post_ok("mode", shadow).await;
    assert_eq!(
        answer,
        json!({ "policy": "api", "mode": "shadow", "enforce": "5%" })
    );
    assert_eq!(shown().await, "5%");
    // A share needs a mode.
    let alone = json!({ "policy": "api", "enforce": "100%" });
    let (status, why) = site.refused("mode", alone).await;
    assert!(status == 400 && why.contains("mode"), "{status} {why}");
    let wrong = json!({ "policy": "api", "mode": "enforce", "enforce": "500%" });
    let (status, why) = site.refused("mode", wrong).await;
    assert_eq!(
        (status, why.as_str()),
        (400, r#"enforce: got "500%", expected "0%" to "100%""#)
    );
    assert_eq!(
        site.limiter.mode("api"),
        Ok(Mode::Shadow),
        "nothing was changed"
    );
}

#[tokio::test]
async fn a_subject_is_looked_at_and_reset() {
    let site = Site::of([ten("api")]).await;
    let _ = site.limiter.charge("api", "alice", 12).await.unwrap();
    let alice = json!({ "policy": "api", "subject": { "text": "alice" } });
    let quota = site.post_ok("peek", alice.clone()).await;
    assert_eq!(quota["policy"], "api");
    assert_eq!(quota["capacity"], 10);
    assert_eq!(quota["remaining"], 0);
    assert_eq!(quota["banned_for_ms"], Value::Null);
    let wait = quota["reset_after_ms"].as_u64().unwrap();
    assert!((1..=3_600_000).contains(&wait), "{wait}");
    let shown = site.limiter.subject_of("alice").to_string();
    assert_eq!(quota["subject"], shown);

    let reset = site.post_ok("reset", alice.clone()).await;
    assert_eq!(reset["remaining"], 10);
    assert_eq!(reset["reset_after_ms"], 0);
    assert_eq!(site.post_ok("peek", alice).await["remaining"], 10);
}

#[tokio::test]
async fn fifteen_digits_are_answered_to_the_last() {
    const WIDE: u64 = 999_999_999_999_999;
    let site = Site::of([Policy::new("tokens", Limit::fixed_window(WIDE, HOUR))]).await;
    let _ = site.limiter.charge("tokens", "alice", 2).await.unwrap();
    let alice = json!({ "policy": "tokens", "subject": { "text": "alice" } });
    let quota = site.post_ok("peek", alice).await;
    assert_eq!(quota["capacity"], WIDE);
    assert_eq!(quota["remaining"], WIDE - 2);
}
