//! What is logged about decisions, and about requests that are refused without one.

use tower_throttle::{
    AccessList, FailureMode, Key, Limit, Limiter, MINUTE, MemoryStore, Mode, OnMissingKey,
    PeerAddr, Penalty, Policy, Rules, SECOND,
};
use tracing::Level;

use crate::observing::send_to_busy_upstream;
use crate::tracing::{check, from, one_a_minute, only, send};
use support::http_store::{TestStore, Trip};
use support::log::Log;

#[tokio::test]
async fn allowed_requests_are_not_logged() {
    let (log, _listening) = Log::listen();
    let policy = Policy::new("api", Limit::gcra(10, MINUTE));
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    check(&limiter, "api", 10).await;
    assert_eq!(log.entries(), []);
}

#[tokio::test]
async fn a_denial_says_which_policy_whose_hash_and_for_how_long() {
    let (log, _listening) = Log::listen();
    let limiter = Limiter::new(MemoryStore::new(), [one_a_minute("api")]).unwrap();
    check(&limiter, "api", 2).await;
    let denied = only(&log, Level::DEBUG, "denied");
    assert_eq!(
        denied.names(),
        ["banned", "policy", "result", "retry_after_us", "subject"]
    );
    assert_eq!(denied.field("policy"), "api");
    assert_eq!(denied.field("result"), "denied");
    assert_eq!(denied.field("banned"), "false");
    assert_eq!(
        denied.field("subject"),
        limiter.subject_of("alice").to_string()
    );
    let wait: u64 = denied.field("retry_after_us").parse().unwrap();
    assert!((1..=60_000_000).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_ban_and_a_denial_are_logged_differently() {
    let (log, _listening) = Log::listen();
    let penalty = Penalty::after(1, MINUTE, MINUTE);
    let policy = one_a_minute("api").penalty(penalty);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    check(&limiter, "api", 3).await;
    let events = log.events();
    assert_eq!(
        events.last().unwrap().field("banned"),
        "true",
        "{events:#?}"
    );
}

#[tokio::test]
async fn a_shadow_denial_says_that_it_is_none() {
    let (log, _listening) = Log::listen();
    let policy = one_a_minute("trial").mode(Mode::Shadow);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    check(&limiter, "trial", 2).await;
    let event = only(&log, Level::DEBUG, "would have been denied");
    assert_eq!(
        event.names(),
        ["policy", "result", "retry_after_us", "subject"]
    );
    assert_eq!(event.field("policy"), "trial");
    assert_eq!(event.field("result"), "shadow_denied");
    assert_eq!(
        event.field("subject"),
        limiter.subject_of("alice").to_string()
    );
}

#[tokio::test]
async fn a_store_failure_is_logged_with_its_consequence() {
    for (mode, text, result) in [
        (FailureMode::Allow, "let through uncounted", "failed_open"),
        (
            FailureMode::Deny,
            "denied because the store failed",
            "failed_closed",
        ),
    ] {
        for trip in [Trip::Fails, Trip::FailsLate] {
            let (log, _listening) = Log::listen();
            let policy = one_a_minute("api").on_store_failure(mode);
            let limiter = Limiter::new(TestStore::new(trip), [policy]).unwrap();
            check(&limiter, "api", 1).await;
            let event = only(&log, Level::DEBUG, text);
            assert_eq!(event.names(), ["failure", "policy", "result"]);
            assert_eq!(event.field("policy"), "api");
            assert_eq!(event.field("result"), result);
            assert_eq!(event.field("failure"), "unreachable");
        }
    }
}

#[tokio::test]
async fn a_hold_says_which_policy_and_for_how_long() {
    let (log, _listening) = Log::listen();
    let limiter = Limiter::new(MemoryStore::new(), [one_a_minute("partner")]).unwrap();
    send_to_busy_upstream(&limiter, "partner", 3).await;
    let event = only(&log, Level::DEBUG, "held by the upstream");
    assert_eq!(event.names(), ["hold_ms", "policy"]);
    assert_eq!(event.field("policy"), "partner");
    assert_eq!(event.field("hold_ms"), "3000");
}

#[tokio::test]
async fn a_refusal_says_why() {
    let policy = || one_a_minute("user").on_missing_key(OnMissingKey::Reject);
    let denied = AccessList::new().keys([Key::header("x-user", b"mallory")]);
    let rules = Rules::new([policy()]).deny(denied);
    let limiter = Limiter::new(MemoryStore::new(), rules).unwrap();
    for (headers, status, reason) in [
        (&[][..], 400, "missing_key"),
        (&[("x-user", "mallory")], 403, "listed"),
    ] {
        let (log, _listening) = Log::listen();
        assert_eq!(send(&limiter, from(None, headers)).await, status);
        let event = only(&log, Level::DEBUG, "rejected before evaluation");
        assert_eq!(event.names(), ["policy", "reason"]);
        assert_eq!(event.field("policy"), "user");
        assert_eq!(event.field("reason"), reason);
    }
}

/// What a server lacks is warned of.
const REFUSED: &str = "rate limiting: requests are refused with 500, as the server does not provide \
                       what the policy needs";
const WOULD_BE_REFUSED: &str = "rate limiting: requests would be refused with 500, as the server does \
                                not provide what the policy needs";

#[tokio::test]
async fn refusals_in_shadow_are_not_logged_as_refusals() {
    let reject = || {
        let policy = one_a_minute("trial").mode(Mode::Shadow);
        policy.on_missing_key(OnMissingKey::Reject)
    };
    for (policy, level, reason, text) in [
        (
            reject(),
            Level::DEBUG,
            "missing_key",
            "would have been rejected before evaluation",
        ),
        (
            reject().by(PeerAddr),
            Level::WARN,
            "misconfigured",
            WOULD_BE_REFUSED,
        ),
    ] {
        let (log, _listening) = Log::listen();
        let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
        assert_eq!(send(&limiter, from(None, &[])).await, 200);
        let event = only(&log, level, text);
        assert_eq!(event.field("policy"), "trial");
        assert_eq!(event.field("reason"), reason);
    }
}

#[tokio::test]
async fn a_server_that_lacks_what_a_policy_needs_is_warned_of() {
    let (log, _listening) = Log::listen();
    let policy = Policy::new("client", Limit::gcra(1, MINUTE)).by(PeerAddr);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    assert_eq!(send(&limiter, from(None, &[])).await, 500);
    let event = only(&log, Level::WARN, REFUSED);
    assert_eq!(event.field("policy"), "client");
    assert_eq!(event.field("reason"), "misconfigured");
    let why = event.field("explanation");
    assert!(why.contains("into_make_service_with_connect_info"), "{why}");
}

/// Every request of such a server is refused, or would be, and clients send as many as they like.
#[tokio::test(start_paused = true)]
async fn missing_server_features_are_warned_of_once_a_minute_each() {
    for (mode, status, of_each) in [(Mode::Enforce, 500, [3, 0]), (Mode::Shadow, 200, [3, 3])] {
        let (log, _listening) = Log::listen();
        let policies = ["one", "other"].map(|name| one_a_minute(name).by(PeerAddr).mode(mode));
        let limiter = Limiter::new(MemoryStore::new(), policies).unwrap();
        // Half a minute after the third line, and long before the next.
        for _ in 0..150 {
            assert_eq!(send(&limiter, from(None, &[])).await, status);
            tokio::time::sleep(SECOND).await;
        }
        let (warnings, others): (Vec<_>, Vec<_>) = log
            .events()
            .into_iter()
            .partition(|event| event.level == Level::WARN);
        let warnings_of = |name| {
            let of_policy = warnings
                .iter()
                .filter(|event| event.field("policy") == name);
            of_policy.count()
        };
        assert_eq!(["one", "other"].map(warnings_of), of_each, "{mode}");
        // The first policy that refuses a request is the only one that is asked.
        let refusals = if mode == Mode::Shadow { 300 } else { 150 };
        assert_eq!(warnings.len() + others.len(), refusals, "{mode}");
        for event in others {
            assert_eq!(event.level, Level::DEBUG);
            assert_eq!(event.field("reason"), "misconfigured");
        }
    }
}

/// Until then it harms nobody, and from then on every request is refused.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_enforced_is_warned_of_at_once() {
    let (log, _listening) = Log::listen();
    let policy = one_a_minute("client").by(PeerAddr).mode(Mode::Shadow);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    assert_eq!(send(&limiter, from(None, &[])).await, 200);
    limiter.set_mode("client", Mode::Enforce).unwrap();
    assert_eq!(send(&limiter, from(None, &[])).await, 500);
    let events = log.events();
    let told: Vec<_> = events
        .iter()
        .filter(|event| event.level == Level::WARN)
        .map(|event| (event.level, &*event.name))
        .collect();
    let expected = [(Level::WARN, WOULD_BE_REFUSED), (Level::WARN, REFUSED)];
    assert_eq!(told, expected);
}
