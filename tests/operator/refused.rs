//! Requests that are refused, and the errors: nonsense, unknown names, a store that is down.

use serde_json::json;
use tower_throttle::{FailureMode, Limiter, Operator};

use crate::{Site, problem, ten, unreachable};

#[tokio::test]
async fn a_nonsensical_request_is_answered_with_what_would_be_right() {
    let site = Site::of([ten("api")]).await;
    for (subject, said) in [
        (
            json!({ "adress": "10.0.0.1" }),
            "expected one of `everybody`",
        ),
        (
            json!({ "address": "10.0.0" }),
            r#"address: got "10.0.0", expected an address such as"#,
        ),
        (
            json!({ "address": "10.0.0.1/24" }),
            "expected an address such as",
        ),
        (json!({ "address": "2001:db8::/31" }), "32 to 128 bits"),
        (json!({ "address": 7 }), "invalid type"),
        (json!({ "hash": "9d15" }), "32 hexadecimal digits"),
        (
            json!([{ "hash": "0".repeat(32) }]),
            "a hash is that of a whole subject",
        ),
        (
            json!({ "header": { "name": "x user", "value": "" } }),
            "the name of a header",
        ),
        (
            json!({ "header": { "name": "x-user" } }),
            "missing field `value`",
        ),
        (
            json!({ "header": "alice" }),
            r#"expected {"name": "x-user", "value": "alice"}"#,
        ),
        (
            json!({ "user": 7.5 }),
            "a user is a string or a whole number",
        ),
        (json!({ "number": "7" }), "a number is a whole number"),
        (json!([]), "at least one part"),
        (json!(null), "subject: "),
        (json!("everyone"), "unknown variant `everyone`"),
        (json!({ "subject": "0".repeat(32) }), "`number`, `hash`"),
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
    for (path, said) in [
        ("switch", r#"{"on": false}"#),
        ("mode", r#"{"policy": "api", "mode": "shadow"}"#),
        ("peek", r#"{"policy": "api", "subject": "#),
    ] {
        let (status, detail) = site.refused(path, json!(true)).await;
        assert_eq!(status, 400);
        assert!(detail.contains(&format!("expected {said}")), "{detail}");
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
async fn too_long_bodies_and_unknown_paths_get_a_problem() {
    let site = Site::of([ten("api")]).await;
    let long = json!({ "policy": "a".repeat(20_000), "mode": "off" });
    assert_eq!(site.refused("mode", long).await.0, 413);
    let nowhere = reqwest::get(format!("{}/limits", site.url)).await.unwrap();
    let (status, detail) = problem(nowhere).await;
    assert_eq!(status, 404);
    assert!(detail.contains("/state"), "{detail}");
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_reported_as_such() {
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
async fn a_reset_that_never_reached_the_store_was_not_done() {
    let limiter = Limiter::new(unreachable(), [ten("api")]).unwrap();
    let site = Site::about(limiter, Operator::new()).await;
    let reset = async || {
        let body = json!({ "policy": "api", "subject": "everybody" });
        site.refused("reset", body).await.1
    };
    assert!(reset().await.contains("it is not known whether"));
    // Until the breaker is open. It still lets single questions through.
    let not_called = async {
        loop {
            let detail = reset().await;
            if detail.contains("is not called") {
                return detail;
            }
        }
    };
    let detail = not_called.await;
    assert!(detail.contains("the subject was not reset"), "{detail}");
}
