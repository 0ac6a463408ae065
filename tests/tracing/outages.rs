//! Outages of the whole store or of a part: how often they are warned of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tower_throttle::{
    Answer, BreakerState, Check, DenyCache, Limiter, MINUTE, SECOND, Store, StoreError,
    StoreErrorKind,
};
use tracing::Level;

use crate::http_store::{TestStore, Trip};
use crate::log::Log;
use crate::{check, one_a_minute};

/// Does not work until it is mended.
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
    let text = "the store failed too often: it is left alone and the failure modes decide";
    assert_eq!((began.level, &*began.name), (Level::WARN, text));
    let text = "the store is back after it had failed too often";
    assert_eq!((ended.level, &*ended.name), (Level::INFO, text));
    for event in [began, ended] {
        assert_eq!(event.names(), ["reason"]);
        assert_eq!(event.field("reason"), "the store cannot be reached");
    }
}

/// As with a cluster of which one node is down.
#[tokio::test(start_paused = true)]
async fn a_store_with_a_failing_part_is_logged_once_a_minute_and_asked_on() {
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
    assert_eq!(limiter.breaker(), BreakerState::Closed);
    let mut warnings = log.events();
    warnings.retain(|event| event.level == Level::WARN);
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    for warning in warnings {
        let text = "a part of the store fails: the failure modes decide about its keys";
        assert_eq!(&*warning.name, text);
        assert_eq!(warning.field("reason"), "the store cannot be reached");
        assert_eq!(warning.field("error"), "no route to it");
    }
}
