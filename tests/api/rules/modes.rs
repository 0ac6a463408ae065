//! Enforced, shadow, off; and the kill switch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::FutureExt;
use tower_throttle::{
    AccessList, CheckError, DAY, DecisionEvent, DecisionResult, FailureMode, Header, Key, Limit,
    Limiter, MINUTE, MemoryStore, Mode, OnMissingKey, Outcome, Policy, RedisStore, Rules,
    per_second,
};

use super::{App, one_a_minute};
use support::asked::decision;
use support::bench;

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn alice() -> Key {
    Key::header("x-user", b"alice")
}

/// Everything that was decided, as policy and result.
type Observed = Arc<Mutex<Vec<(String, DecisionResult)>>>;

fn observed(policies: impl IntoIterator<Item = Policy>) -> (Limiter, Observed) {
    let events = Observed::default();
    let log = Arc::clone(&events);
    let limiter = Limiter::builder(MemoryStore::new(), policies)
        .on_decision(move |event: &DecisionEvent<'_>| {
            let events = (event.policy.to_owned(), event.result());
            log.lock().unwrap().push(events);
        })
        .build()
        .unwrap();
    (limiter, events)
}

#[tokio::test]
async fn a_policy_in_shadow_denies_nobody_and_reports_its_denials() {
    let (limiter, events) = observed([one_a_minute("trial").mode(Mode::Shadow)]);
    let app = App::behind(&limiter).await;
    for _ in 0..3 {
        let response = app.get("/", &[("x-user", "alice")]).await;
        assert_eq!(response.status(), OK);
        assert!(
            !response.headers().contains_key("ratelimit"),
            "{response:?}"
        );
    }
    let results: Vec<_> = events
        .lock()
        .unwrap()
        .iter()
        .map(|events| events.1)
        .collect();
    let denied = DecisionResult::ShadowDenied;
    assert_eq!(results, [DecisionResult::NearLimit, denied, denied]);
}

#[tokio::test]
async fn a_shadow_policy_counts_as_if_it_were_enforced() {
    let policies = [
        one_a_minute("enforced"),
        Policy::new("trial", Limit::gcra(5, MINUTE)).mode(Mode::Shadow),
    ];
    let limiter = Limiter::new(MemoryStore::new(), policies).unwrap();
    let app = App::behind(&limiter).await;
    assert_eq!(app.status("alice").await, OK);
    // Denied by the other one, which would have left this one untouched.
    assert_eq!(app.status("alice").await, DENIED);
    assert_eq!(app.status("bob").await, OK);
    let left = limiter.peek("trial", Key::everybody()).await.unwrap();
    assert_eq!(left.remaining(), 3);
}

#[tokio::test]
async fn a_used_up_shadow_policy_does_not_affect_others() {
    let policies = [
        Policy::new("trial", Limit::gcra(1, MINUTE)).mode(Mode::Shadow),
        Policy::new("other trial", Limit::gcra(10, MINUTE)).mode(Mode::Shadow),
        Policy::new("enforced", Limit::gcra(10, MINUTE)),
    ];
    let limiter = Limiter::new(MemoryStore::new(), policies).unwrap();
    let app = App::behind(&limiter).await;
    for _ in 0..4 {
        assert_eq!(app.status("alice").await, OK);
    }
    for (policy, remaining) in [("trial", 0), ("other trial", 6), ("enforced", 6)] {
        let left = limiter.peek(policy, Key::everybody()).await.unwrap();
        assert_eq!(left.remaining(), remaining, "{policy}");
    }
}

#[tokio::test]
async fn a_policy_in_shadow_never_holds_a_request_up() {
    let queue = Limit::leaky_bucket(10, per_second(1));
    let policies = [
        Policy::new("queue", queue).mode(Mode::Shadow),
        Policy::new("patient", Limit::token_bucket(1, per_second(1)))
            .max_wait(Duration::from_secs(30))
            .mode(Mode::Shadow),
    ];
    let limiter = Limiter::new(MemoryStore::new(), policies).unwrap();
    for _ in 0..5 {
        for policy in ["queue", "patient"] {
            let decision = limiter.check(policy, Key::everybody()).await.unwrap();
            assert!(decision.is_allowed());
            assert_eq!(decision.delay(), Duration::ZERO, "{policy}");
        }
    }
    let started = std::time::Instant::now();
    let waited = limiter.acquire("queue", Key::everybody(), 5);
    assert!(waited.await.is_ok());
    // Enforced, it would have been at least five seconds.
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn requests_that_a_policy_in_shadow_cannot_read_pass() {
    let policy = one_a_minute("trial").on_missing_key(OnMissingKey::Reject);
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    let app = App::behind(&limiter).await;
    let without_user = app.get("/", &[]).await.status();
    assert_eq!(without_user, StatusCode::BAD_REQUEST);
    limiter.set_mode("trial", Mode::Shadow).unwrap();
    assert_eq!(app.get("/", &[]).await.status(), OK);
}

#[tokio::test]
async fn a_store_that_is_gone_refuses_nobody_for_a_policy_in_shadow() {
    let server = support::redis::Server::start();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    drop(server);
    let trial = one_a_minute("trial").on_store_failure(FailureMode::Deny);
    let limiter = Limiter::new(store, [trial]).unwrap();
    let refused = limiter.check("trial", alice()).await.unwrap();
    assert!(matches!(refused.outcome(), Outcome::FailedClosed(_)));
    limiter.set_mode("trial", Mode::Shadow).unwrap();
    let passed = limiter.check("trial", alice()).await.unwrap();
    assert!(matches!(passed.outcome(), Outcome::FailedOpen(_)));
    assert_eq!(App::behind(&limiter).await.status("alice").await, OK);
}

#[tokio::test]
async fn modes_change_while_the_limiter_is_at_work() {
    let (limiter, events) = observed([one_a_minute("api")]);
    let app = App::behind(&limiter).await;
    let decided = || events.lock().unwrap().len();
    assert_eq!(limiter.mode("api"), Ok(Mode::Enforce));
    assert_eq!(app.status("alice").await, OK);
    assert_eq!(app.status("alice").await, DENIED);

    limiter.set_mode("api", Mode::Shadow).unwrap();
    assert_eq!(limiter.mode("api"), Ok(Mode::Shadow));
    assert_eq!(app.status("alice").await, OK);
    assert_eq!(decided(), 3);

    limiter.set_mode("api", Mode::Off).unwrap();
    assert_eq!(app.status("alice").await, OK);
    let passed = limiter.check("api", alice()).await.unwrap();
    assert_eq!(passed.outcome(), Outcome::Unlimited);
    assert_eq!(decided(), 3, "what is off decides nothing");

    limiter.set_mode("api", Mode::Enforce).unwrap();
    assert_eq!(app.status("alice").await, DENIED);
}

/// A question that found its policy in shadow is not treated as enforced because the policy is off
/// by now.
#[test]
fn a_policy_switched_off_from_shadow_denies_nobody_meanwhile() {
    let limiter = &limiter_in_shadow();
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                limiter.set_mode("trial", Mode::Off).unwrap();
                limiter.set_mode("trial", Mode::Shadow).unwrap();
            }
        });
        let denied = (0..100_000).filter(|_| {
            let decision = limiter.check("trial", "alice").now_or_never().unwrap();
            let held = limiter.admit("trial", "alice").now_or_never().unwrap();
            !decision.unwrap().is_allowed() || held.is_err()
        });
        let denied = denied.count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(denied, 0);
    });
}

fn limiter_in_shadow() -> Limiter {
    let policy = Policy::new("trial", Limit::gcra(1, MINUTE)).mode(Mode::Shadow);
    Limiter::new(MemoryStore::new(), [policy]).unwrap()
}

#[tokio::test]
async fn charges_are_not_counted_while_nobody_is_limited() {
    let friends = AccessList::new().keys([Key::from("friend")]);
    let limiter = Limiter::new(
        MemoryStore::new(),
        Rules::new([Policy::new("rows", Limit::gcra(10, MINUTE))]).allow(friends),
    )
    .unwrap();
    let charge = async |key: &'static str| {
        let charged = limiter.charge("rows", key, 10).await.unwrap();
        assert_eq!(charged.outcome(), Outcome::Unlimited);
    };
    charge("friend").await;
    limiter.turn_off();
    charge("alice").await;
    limiter.turn_on();
    limiter.set_mode("rows", Mode::Off).unwrap();
    charge("alice").await;
    limiter.set_mode("rows", Mode::Enforce).unwrap();
    limiter.set_allowed(AccessList::new());
    for key in ["friend", "alice"] {
        assert_eq!(limiter.peek("rows", key).await.unwrap().remaining(), 10);
    }
}

/// Somebody who is refused may have to pay nevertheless, once they are let in again.
#[tokio::test]
async fn a_refused_key_is_charged_and_a_look_tells_what_is_left() {
    let limit = Limit::fixed_window(10, DAY);
    let limiter = Limiter::new(MemoryStore::new(), [Policy::new("rows", limit)]).unwrap();
    limiter.set_denied(AccessList::new().keys([Key::from("alice")]));
    let charged = limiter.charge("rows", "alice", 4).await.unwrap();
    assert_eq!(charged.remaining(), 6);
    let look = async || limiter.peek("rows", "alice").await.unwrap().remaining();
    assert_eq!(look().await, 6, "refused");
    limiter.set_denied(AccessList::new());
    limiter.set_allowed(AccessList::new().keys([Key::from("alice")]));
    assert_eq!(look().await, 6, "let through");
    limiter.turn_off();
    assert_eq!(look().await, 6, "nobody is limited");
    limiter.turn_on();
    limiter.set_allowed(AccessList::new());
    limiter.set_mode("rows", Mode::Off).unwrap();
    assert_eq!(look().await, 6, "off");
}

#[tokio::test]
async fn the_mode_of_an_unknown_policy_is_an_error() {
    let limiter = Limiter::new(MemoryStore::new(), [one_a_minute("api")]).unwrap();
    let unknown = CheckError::UnknownPolicy {
        name: "apis".to_owned(),
    };
    assert_eq!(limiter.mode("apis"), Err(unknown.clone()));
    assert_eq!(limiter.set_mode("apis", Mode::Off), Err(unknown));
}

#[tokio::test]
async fn the_kill_switch_lets_everything_pass_uncounted() {
    let (limiter, events) = observed([one_a_minute("api")]);
    let app = App::behind(&limiter).await;
    assert_eq!(app.status("alice").await, OK);
    limiter.turn_off();
    assert!(!limiter.is_on());
    for _ in 0..3 {
        assert_eq!(app.status("alice").await, OK);
        assert_eq!(app.status("bob").await, OK);
        let held = limiter.admit("api", alice()).await;
        assert!(held.is_ok());
        assert_eq!(decision(&held).outcome(), Outcome::Unlimited);
    }
    assert_eq!(events.lock().unwrap().len(), 1);
    limiter.turn_on();
    assert!(limiter.is_on());
    assert_eq!(app.status("alice").await, DENIED);
    assert_eq!(app.status("bob").await, OK);
}

#[tokio::test]
async fn a_request_in_shadow_gives_its_place_back_over_either_store() {
    for bench in [bench::Bench::memory(), bench::Bench::redis().await] {
        let policy = Policy::new("places", Limit::concurrency(1))
            .by(Header::new("x-user"))
            .mode(Mode::Shadow);
        let limiter = bench.limiter([policy]);
        let app = App::behind(&limiter).await;
        for _ in 0..3 {
            assert_eq!(app.status("alice").await, OK);
        }
        let free = |decision: &tower_throttle::Decision| decision.remaining() == 1;
        let started = std::time::Instant::now();
        while !free(&limiter.peek("places", alice()).await.unwrap()) {
            assert!(started.elapsed() < support::web::GENEROUS);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
