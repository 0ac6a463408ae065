//! Outages of the whole store or of a part: how often they are warned of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_throttle::store::{Answer, Check, DenyCache, Store};
use tower_throttle::{
    BreakerState, FailureMode, Limiter, MINUTE, Mode, SECOND, StoreError, StoreErrorKind,
};
use tracing::Level;

use crate::tracing::{check, one_a_minute};
use support::http_store::{TestStore, Trip};
use support::log::Log;

/// Does not work until it is fixed.
#[derive(Clone)]
struct Broken(Arc<AtomicBool>);

impl Store for Broken {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let is_mended = self.0.load(Ordering::SeqCst);
        let trip = if is_mended {
            Trip::Short
        } else {
            Trip::FailsLate
        };
        TestStore::new(trip).ask(checks)
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_warned_of_once_and_so_is_its_end() {
    let (log, _listening) = Log::listen();
    let store = Broken(Arc::default());
    let limiter = Limiter::new(store.clone(), [one_a_minute("api")]).unwrap();
    check(&limiter, "api", 100).await;
    store.0.store(true, Ordering::SeqCst);
    // Longer than any pause before the store is asked again.
    tokio::time::sleep(MINUTE).await;
    check(&limiter, "api", 1).await;
    let mut events = log.events();
    events.retain(|event| event.level < Level::DEBUG);
    let [began, ended] = &events[..] else {
        panic!("not two: {events:#?}");
    };
    assert_eq!((began.level, ended.level), (Level::WARN, Level::INFO));
    assert_eq!(began.names(), ["reason"]);
    for event in [began, ended] {
        assert_eq!(event.field("reason"), "the store cannot be reached");
    }
    // The first of these opened the breaker, and the last one closed it.
    assert_eq!(ended.field("uncounted"), "96");
}

/// A store with a name, of which somebody else decides.
struct Named(Broken);

impl Store for Named {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        self.0.ask(checks)
    }

    fn name(&self) -> String {
        "Redis at 192.0.2.7:6379\nERROR".to_owned()
    }
}

/// What an operator on call has to know, for each of several limiters.
#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_with_the_effect_on_each_policy() {
    let (log, _listening) = Log::listen();
    let broken = Broken(Arc::default());
    let policies = [
        one_a_minute("open"),
        one_a_minute("shut").on_store_failure(FailureMode::Deny),
        one_a_minute("local").on_store_failure(FailureMode::Local { share: 0.5 }),
        one_a_minute("trial").mode(Mode::Shadow),
        one_a_minute("resting").mode(Mode::Off),
    ];
    let limiter = Limiter::new(Named(broken.clone()), policies).unwrap();
    assert_eq!(limiter.outage(), None);
    check(&limiter, "shut", 5).await;
    let warned = |log: &Log| {
        let mut events = log.events();
        events.retain(|event| event.level < Level::DEBUG);
        events.pop().expect("it is told").name
    };
    let began = warned(&log);
    for said in [
        "Redis at 192.0.2.7:6379\\nERROR cannot be reached",
        "policy \"open\" is NOT enforced",
        "policy \"shut\" denies all requests",
        "policy \"local\" counts in this process alone",
    ] {
        assert!(began.contains(said), "{said}: {began}");
    }
    assert!(
        !began.contains("trial") && !began.contains("resting"),
        "{began}"
    );

    // Some are refused, and some only look.
    for policy in ["open", "shut", "local", "trial", "resting", "open"] {
        check(&limiter, policy, 1).await;
        let _ = limiter.peek(policy, "alice").await.unwrap();
    }
    tokio::time::advance(SECOND / 8).await;
    let outage = limiter.outage().unwrap();
    assert_eq!((outage.uncounted, outage.duration), (2, SECOND / 8));
    assert_eq!(outage.reason, StoreErrorKind::Unreachable);

    broken.0.store(true, Ordering::SeqCst);
    tokio::time::sleep(MINUTE).await;
    check(&limiter, "open", 1).await;
    let ended = warned(&log);
    assert!(
        ended.contains("Redis at 192.0.2.7:6379\\nERROR is back after 60.1 s"),
        "{ended}"
    );
    assert!(ended.contains("2 requests passed uncounted"), "{ended}");
    assert_eq!(limiter.outage(), None);
}

/// The log is the only sign of them: they open no breaker.
#[tokio::test(start_paused = true)]
async fn a_full_or_overloaded_store_is_warned_of_once_a_minute() {
    struct Failing(StoreErrorKind);

    impl Store for Failing {
        fn ask(&self, _: &[Check<'_>]) -> Answer {
            Answer::Ready(Err(StoreError::new(self.0)))
        }
    }

    for kind in [
        StoreErrorKind::Full,
        StoreErrorKind::Overloaded,
        StoreErrorKind::CorruptValue,
    ] {
        let (log, _listening) = Log::listen();
        let limiter = Limiter::new(Failing(kind), [one_a_minute("api")]).unwrap();
        for _ in 0..150 {
            check(&limiter, "api", 20).await;
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(limiter.breaker_state(), BreakerState::Closed);
        let mut warnings = log.events();
        warnings.retain(|event| event.level == Level::WARN);
        assert_eq!(warnings.len(), 3, "{kind}: {warnings:#?}");
        for warning in warnings {
            assert!(
                warning.name.contains("\"api\" is NOT enforced"),
                "{warning:?}"
            );
            assert_eq!(warning.field("reason"), kind.to_string());
        }
    }
}

/// As with a cluster of which one node is down.
#[tokio::test(start_paused = true)]
async fn a_failing_part_is_logged_once_a_minute() {
    /// Every second question is about the part that is gone.
    struct HalfGone(AtomicBool);

    impl Store for HalfGone {
        fn ask(&self, checks: &[Check<'_>]) -> Answer {
            if !self.0.fetch_not(Ordering::SeqCst) {
                return TestStore::new(Trip::Short).ask(checks);
            }
            let gone = StoreError::with_source(StoreErrorKind::Unreachable, "no route to it");
            Answer::Pending(Box::pin(async { Err(gone) }))
        }

        fn fails_in_parts(&self) -> bool {
            true
        }
    }

    let (log, _listening) = Log::listen();
    let store: Arc<dyn Store> = Arc::new(HalfGone(AtomicBool::default()));
    let limiter = Limiter::new(DenyCache::new(store), [one_a_minute("api")]).unwrap();
    for _ in 0..150 {
        check(&limiter, "api", 20).await;
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(limiter.breaker_state(), BreakerState::Closed);
    let mut warnings = log.events();
    warnings.retain(|event| event.level == Level::WARN);
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    for warning in warnings {
        let name = &warning.name;
        assert!(name.contains("a part of the store fails"), "{name}");
        assert!(name.contains("\"api\" is NOT enforced"), "{name}");
        assert_eq!(warning.field("reason"), "the store cannot be reached");
        assert_eq!(warning.field("error"), "no route to it");
    }
}
