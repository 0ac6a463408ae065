//! A limit that admits nothing: decided without a store, and like any other limit otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    AccessList, DecisionEvent, DecisionResult, FailureMode, HOUR, Header, Key, Limit, Limiter,
    MINUTE, MemoryStore, Mode, Outcome, PeerAddr, Penalty, Policy, QuotaHeaders, RateLimitLayer,
    Rejection, RejectionKind, Rules, SECOND, StoreError, StoreErrorKind,
};

use super::{App, one_a_minute};
use support::asked::decision;

const OK: StatusCode = StatusCode::OK;
const DENIED: StatusCode = StatusCode::TOO_MANY_REQUESTS;

fn closed(name: &str) -> Policy {
    Policy::new(name, Limit::nothing()).by(Header::new("x-user"))
}

fn alice() -> Key {
    Key::header("x-user", b"alice")
}

/// Fails, and knows whether it was asked.
#[derive(Clone, Default)]
struct Down(Arc<AtomicBool>);

impl Store for Down {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        self.0.store(true, Ordering::Relaxed);
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable)))
    }
}

#[tokio::test]
async fn no_operation_takes_anything_or_asks_a_store() {
    let store = Down::default();
    let policies = [
        closed("allow"),
        closed("deny").on_store_failure(FailureMode::Deny),
        closed("local").on_store_failure(FailureMode::Local { share: 0.5 }),
        closed("costly").cost(7),
        // Whatever else is said of it stays for when it admits something again.
        closed("waits").max_wait(SECOND),
        closed("grouped").group("client").count_if(|_| true),
        closed("bans").penalty(Penalty::after(1, HOUR, HOUR)),
    ];
    let count = policies.len();
    let limiter = Limiter::new(store.clone(), policies).unwrap();
    let app = App::behind(&limiter).await;
    assert_eq!(app.status("alice").await, DENIED);
    assert_eq!(limiter.policy_names().len(), count);
    for name in limiter.policy_names() {
        let name = name.as_str();
        for decision in [
            limiter.check(name, alice()).await.unwrap(),
            limiter.check_cost(name, alice(), 3).await.unwrap(),
            decision(&limiter.acquire(name, alice(), 1).await),
            decision(&limiter.try_acquire(name, alice(), 1, MINUTE).await),
            decision(&limiter.admit(name, alice()).await),
        ] {
            assert_eq!(decision.outcome(), Outcome::NeverFits, "{name}");
            assert_eq!(decision.retry_after(), None, "{name}");
            assert_eq!((decision.limit(), decision.remaining()), (0, 0), "{name}");
        }
        for decision in [
            limiter.peek(name, alice()).await.unwrap(),
            limiter
                .peek_subject(name, limiter.subject_of(alice()))
                .await
                .unwrap(),
            limiter.charge(name, alice(), 1).await.unwrap(),
            limiter.credit(name, alice(), 1).await.unwrap(),
            decision(&limiter.acquire(name, alice(), 0).await),
        ] {
            assert_eq!(decision.outcome(), Outcome::Allowed, "{name}");
            assert_eq!((decision.limit(), decision.remaining()), (0, 0), "{name}");
        }
    }
    assert!(!store.0.load(Ordering::Relaxed));
}

#[tokio::test]
async fn its_denial_is_a_rejection_without_a_time_to_retry() {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [one_a_minute("other"), closed("closed")],
    );
    let limiter = limiter.unwrap();
    let headers = QuotaHeaders::DRAFT_11.and(QuotaHeaders::X_RATELIMIT_DELTA);
    let layer = RateLimitLayer::new(limiter.clone()).headers(headers);
    let seen = Arc::new(Mutex::new(None));
    let log = Arc::clone(&seen);
    let app = axum::Router::new()
        .layer(layer)
        .layer(axum::middleware::map_response(
            move |response: axum::response::Response| {
                *log.lock().unwrap() = response.extensions().get::<Rejection>().cloned();
                std::future::ready(response)
            },
        ));
    let app = App::at(support::web::serve(app).await);
    for _ in 0..3 {
        let response = app.get("/", &[("x-user", "alice")]).await;
        assert_eq!(response.status(), DENIED);
        let told = |name| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap())
        };
        assert_eq!(told("ratelimit-policy"), Some("\"closed\";q=0"));
        assert_eq!(told("ratelimit"), Some("\"closed\";r=0"));
        assert_eq!(told("retry-after"), None);
        assert_eq!(told("x-ratelimit-limit"), None);
        let rejection = seen.lock().unwrap().take().unwrap();
        assert_eq!(rejection.kind(), RejectionKind::NeverFits);
        assert_eq!(rejection.policies(), ["closed"]);
    }
    let untouched = limiter.peek("other", alice()).await.unwrap();
    assert_eq!(untouched.remaining(), 1);
}

#[tokio::test]
async fn its_mode_decides_and_observers_hear_of_it() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let limiter = Limiter::builder(
        MemoryStore::new(),
        [closed("closed").mode(Mode::Shadow), one_a_minute("other")],
    )
    .on_decision(move |event: &DecisionEvent<'_>| {
        let told = (event.policy.to_owned(), event.result());
        log.lock().unwrap().push(told);
    })
    .build()
    .unwrap();
    let app = App::behind(&limiter).await;
    let results = || {
        let told = std::mem::take(&mut *told.lock().unwrap());
        told.into_iter().collect::<Vec<_>>()
    };
    let closed = |result| ("closed".to_owned(), result);
    let other = |result| ("other".to_owned(), result);

    let response = app.get("/", &[("x-user", "alice")]).await;
    assert_eq!(response.status(), OK);
    let policies = response.headers()["ratelimit-policy"].to_str().unwrap();
    assert_eq!(policies, "\"other\";q=1;w=60");
    assert_eq!(
        results(),
        [
            closed(DecisionResult::ShadowDenied),
            other(DecisionResult::NearLimit)
        ]
    );
    let shadow = limiter.check("closed", alice()).await.unwrap();
    assert_eq!(shadow.outcome(), Outcome::ShadowDenied);
    assert_eq!(shadow.retry_after(), None);
    assert_eq!(results(), [closed(DecisionResult::ShadowDenied)]);
    // What the other takes is given back as ever.
    assert_eq!(app.status("alice").await, DENIED);
    assert_eq!(
        results(),
        [
            closed(DecisionResult::ShadowDenied),
            other(DecisionResult::Denied)
        ]
    );

    limiter.set_mode("closed", Mode::Enforce).unwrap();
    assert_eq!(app.status("bob").await, DENIED);
    assert_eq!(
        results(),
        [
            closed(DecisionResult::Denied),
            other(DecisionResult::NotAsked)
        ]
    );
    limiter.set_mode("closed", Mode::Off).unwrap();
    assert_eq!(app.status("bob").await, OK);
    limiter.set_mode("closed", Mode::Enforce).unwrap();
    limiter.turn_off();
    assert_eq!(app.status("bob").await, OK);
}

#[tokio::test]
async fn a_place_that_another_policy_has_given_is_free_again() {
    let places = Policy::new("places", Limit::concurrency(1));
    let limiter = Limiter::new(
        MemoryStore::new(),
        [closed("closed").mode(Mode::Shadow), places],
    );
    let limiter = limiter.unwrap();
    let app = App::behind(&limiter).await;
    for _ in 0..3 {
        assert_eq!(app.status("alice").await, OK);
        while limiter
            .peek("places", Key::everybody())
            .await
            .unwrap()
            .remaining()
            == 0
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn access_lists_come_first() {
    let by_peer = || closed("closed").by(PeerAddr);
    for (listed, status) in [("allow", OK), ("deny", StatusCode::FORBIDDEN)] {
        let client = AccessList::new()
            .addresses(PeerAddr, ["192.0.2.7"])
            .unwrap();
        let rules = Rules::new([by_peer()]);
        let rules = match listed {
            "allow" => rules.allow(client),
            _ => rules.deny(client),
        };
        let limiter = Limiter::new(MemoryStore::new(), rules).unwrap();
        let at = async |peer| App::with_peer(&limiter, peer).await.status("alice").await;
        assert_eq!(at("192.0.2.7:1").await, status);
        assert_eq!(at("192.0.2.8:1").await, DENIED);
    }
}

#[tokio::test]
async fn a_limit_can_become_nothing_and_something_again() {
    let counted =
        || Policy::new("api", Limit::gcra(2, HOUR)).penalty(Penalty::after(1, HOUR, HOUR));
    let limiter = Limiter::new(MemoryStore::new(), [counted()]).unwrap();
    assert!(limiter.check("api", "alice").await.unwrap().is_allowed());
    let nothing = || Rules::new([Policy::new("api", Limit::nothing())]);
    limiter.replace(nothing()).unwrap();
    for _ in 0..3 {
        let denied = limiter.check("api", "alice").await.unwrap();
        assert_eq!(denied.outcome(), Outcome::NeverFits);
    }
    limiter.replace([counted()]).unwrap();
    // What was used stays used, and nobody is banned for what was asked meanwhile.
    let looked = limiter.peek("api", "alice").await.unwrap();
    assert_eq!((looked.remaining(), looked.banned_for()), (1, None));
    limiter.replace(nothing()).unwrap();
    assert!(limiter.reset("api", "alice").await.unwrap().is_allowed());
    limiter.replace([counted()]).unwrap();
    assert_eq!(limiter.peek("api", "alice").await.unwrap().remaining(), 2);
}

#[test]
fn it_has_no_options_and_what_nearly_means_it_names_it() {
    let refused = |limit| {
        let refused = Limiter::new(MemoryStore::new(), [Policy::new("api", limit)]);
        refused.unwrap_err().to_string()
    };
    for limit in [
        Limit::nothing().burst(1),
        Limit::nothing().and(1, MINUTE),
        Limit::nothing().aligned(),
        Limit::nothing().slices(2),
        Limit::nothing().lease(MINUTE),
        Limit::nothing().without_delay(),
    ] {
        assert!(refused(limit).contains("is an option of"), "{limit:?}");
    }
    for limit in [
        Limit::gcra(0, MINUTE),
        Limit::gcra(1, MINUTE).burst(0),
        Limit::fixed_window(0, MINUTE),
        Limit::sliding_log(0, MINUTE),
        Limit::token_bucket(0, tower_throttle::per_second(1)),
        Limit::concurrency(0),
    ] {
        assert!(refused(limit).contains("Limit::nothing()"), "{limit:?}");
    }
    assert_eq!(Limit::nothing().to_string(), "nothing");
}
