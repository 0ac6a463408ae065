//! A store that fails, and this process's share of the limit meanwhile: when services that wait for
//! it are ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tower::Layer;
use tower_throttle::store::Action;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    FailureMode, HOUR, Limit, Limiter, MINUTE, MemoryStore, Policy, SECOND, StoreError,
    StoreErrorKind,
};

use super::{Partner, Watched, after, layer, send, send_all};
use support::virtual_time::{self, ms};

/// Fails after a round trip while it is gone.
#[derive(Clone)]
struct Leaving {
    store: MemoryStore,
    is_gone: Arc<AtomicBool>,
    /// Whether it still answers looks, like a server that has no memory left.
    answers_looks: bool,
}

impl Leaving {
    fn gone() -> Self {
        Self {
            store: virtual_time::store(),
            is_gone: Arc::new(true.into()),
            answers_looks: false,
        }
    }

    fn full() -> Self {
        Self {
            answers_looks: true,
            ..Self::gone()
        }
    }

    fn comes_back(&self) {
        self.is_gone.store(false, Ordering::SeqCst);
    }
}

impl Store for Leaving {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let only_looks = checks.iter().all(|check| check.action == Action::look());
        let is_gone = self.is_gone.load(Ordering::SeqCst) && !(self.answers_looks && only_looks);
        let answer = match self.store.ask(checks) {
            Answer::Ready(answer) if !is_gone => answer,
            _ => Err(StoreError::new(StoreErrorKind::Unreachable)),
        };
        Answer::Pending(Box::pin(async { answer }))
    }
}

/// A small share of this limit while the store is gone.
fn with_share(limit: Limit) -> Policy {
    Policy::new("partner", limit).on_store_failure(FailureMode::Local { share: 0.01 })
}

#[tokio::test(start_paused = true)]
async fn when_the_store_is_back_nobody_waits_for_a_small_share() {
    let store = Leaving::gone();
    let policy = with_share(Limit::gcra(100, SECOND).burst(100));
    let limiter = Limiter::new(store.clone(), [policy]).unwrap();
    let mut services = vec![layer(&limiter).layer(Partner::new()); 60];
    let sent = join_all(services.iter_mut().map(send));
    let back = async {
        sleep(SECOND).await;
        store.comes_back();
    };
    let (sent, ()) = tokio::join!(sent, back);
    // Nobody else asks who could find out that it is back.
    let last = sent.into_iter().max().unwrap();
    assert!(last <= ms(5_000), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn after_few_failures_the_store_is_asked_again() {
    let store = Watched::failing(2);
    let limiter = store.limiter_of(with_share(Limit::gcra(1, MINUTE)));
    let service = layer(&limiter).layer(Partner::new());
    // The first two are of the share; the second asks the store again.
    assert_eq!(send_all(service, 3).await, after([0, 1_000, 61_000]));
}

#[tokio::test(start_paused = true)]
async fn without_permits_from_the_store_share_and_places_are_kept() {
    for store in [Leaving::gone(), Leaving::full()] {
        let limiter = Limiter::new(store, [with_share(Limit::gcra(1, MINUTE))]).unwrap();
        let mut services = vec![layer(&limiter).layer(Partner::new()); 4];
        let start = std::time::Instant::now();
        let sent = timeout(HOUR, join_all(services.iter_mut().map(send))).await;
        // The share is counted on the machine's clock, which advances independently of the waits.
        let meanwhile = start.elapsed();
        for (sent, due) in sent
            .unwrap()
            .into_iter()
            .zip((0..).map(|minutes| minutes * MINUTE))
        {
            assert!(sent <= due && due - sent <= meanwhile, "{sent:?}, {due:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_beyond_the_share_is_sent_when_the_store_is_back() {
    let store = Leaving::gone();
    let policy = with_share(Limit::gcra(100, SECOND).burst(100));
    let limiter = Limiter::new(store.clone(), [policy]).unwrap();
    let mut service = layer(&limiter).cost(2).layer(Partner::new());
    let back = async {
        sleep(MINUTE).await;
        store.comes_back();
    };
    let (sent, ()) = tokio::join!(send(&mut service), back);
    // The breaker's longest pause, and a fifth.
    assert!(sent >= MINUTE && sent <= MINUTE + ms(6_000), "{sent:?}");
}
