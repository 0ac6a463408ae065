//! A store that is left alone and can tell when it is back.

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::Instant;

use super::*;
use crate::store::Recovered;

/// Reports its return when told to.
struct Watchable {
    store: Scripted,
    is_back: watch::Sender<bool>,
    /// How often somebody began to wait for it.
    started: AtomicUsize,
    /// Cloned by each future that waits.
    waiting: Arc<()>,
}

impl Store for Watchable {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        self.store.ask(checks)
    }

    fn recovered(&self, within: Duration) -> Option<Recovered> {
        assert_eq!(within, Duration::from_millis(50));
        self.started.fetch_add(1, Ordering::SeqCst);
        let (mut is_back, waiting) = (self.is_back.subscribe(), Arc::clone(&self.waiting));
        Some(Box::pin(async move {
            let _ = is_back.wait_for(|is_back| *is_back).await;
            drop(waiting);
        }))
    }
}

impl Watchable {
    fn waiting(&self) -> usize {
        Arc::strong_count(&self.waiting) - 1
    }
}

fn watchable(way: Way) -> (Arc<Watchable>, Failover) {
    let store = Arc::new(Watchable {
        store: Scripted {
            way: Mutex::new(way),
            asked: Mutex::default(),
            questions: AtomicUsize::default(),
        },
        is_back: watch::Sender::new(false),
        started: AtomicUsize::default(),
        waiting: Arc::default(),
    });
    let deadline = Duration::from_millis(50);
    let failover = Failover::new(store.clone(), deadline, Arc::new(()), Observers::default());
    (store, failover)
}

async fn failure(failover: &Failover) -> Option<StoreErrorKind> {
    let decisions = ask(failover, &one(FailureMode::Deny)).await;
    decisions[0].store_failure()
}

/// Asks a hundred times a second for this long.
async fn ask_for(failover: &Failover, length: Duration) {
    let until = Instant::now() + length;
    while Instant::now() < until {
        failure(failover).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_says_it_is_back_is_asked_at_once() {
    for way in [Way::Fails(GONE), Way::Hangs] {
        let (store, failover) = watchable(way);
        for away in [1, 10, 60] {
            store.is_back.send_replace(false);
            store.store.now(way);
            ask_for(&failover, away * SECOND).await;
            assert_ne!(failover.breaker().state(), BreakerState::Closed);
            store.store.now(Way::Works);
            store.is_back.send_replace(true);
            // A probe in flight may still fail. Then the store is listened to again after a quarter
            // of a second, although the pauses are five seconds.
            ask_for(&failover, Duration::from_millis(400)).await;
            assert_eq!(failure(&failover).await, None, "{away} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_caller_watches_for_all_while_there_are_questions() {
    let (store, failover) = watchable(Way::Fails(GONE));
    ask_for(&failover, 60 * SECOND).await;
    assert_eq!(store.started.load(Ordering::SeqCst), 1);
    assert_eq!(store.waiting(), 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_store_that_nobody_asks_or_whose_limiter_is_gone() {
    let (store, failover) = watchable(Way::Fails(GONE));
    ask_for(&failover, SECOND).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(store.waiting(), 1, "questions may come in a moment");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(store.waiting(), 0);
    ask_for(&failover, SECOND).await;
    assert_eq!(store.waiting(), 1);
    drop(failover);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(store.waiting(), 0);
}

/// As with a thread that blocks on a decision now and then.
#[test]
fn another_runtime_watches_if_that_of_the_watcher_is_not_driven() {
    let runtime = || {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let (idle, busy) = (runtime(), runtime());
    let (store, failover) = watchable(Way::Fails(GONE));
    let left = idle.block_on(async {
        while store.started.load(Ordering::SeqCst) == 0 {
            failure(&failover).await;
        }
        Instant::now()
    });
    busy.block_on(async {
        tokio::time::sleep_until(left).await;
        ask_for(&failover, 60 * SECOND).await;
        assert_eq!(store.started.load(Ordering::SeqCst), 2);
        store.store.now(Way::Works);
        store.is_back.send_replace(true);
        ask_for(&failover, Duration::from_millis(400)).await;
        assert_eq!(failure(&failover).await, None);
    });
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_store_that_a_probe_has_found_to_be_back() {
    let (store, failover) = watchable(Way::Fails(GONE));
    ask_for(&failover, SECOND).await;
    assert_eq!(store.waiting(), 1);
    store.store.now(Way::Works);
    while failure(&failover).await.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(store.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_outside_of_any_runtime_leaves_the_watch_to_the_next() {
    let (store, failover) = watchable(Way::Fails(GONE));
    open(&failover).await;
    tokio::time::sleep(SECOND).await;
    // Nobody else may probe, whatever the time is outside.
    let _probe = Breaker::begin_call(&failover.breaker, SECOND).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(question(&failover, &one(FailureMode::Deny))));
    });
    assert_eq!(store.started.load(Ordering::SeqCst), 0);
    failure(&failover).await;
    assert_eq!(store.started.load(Ordering::SeqCst), 1);
}

/// The first pause bounds how often a store is asked that wrongly says that it is back.
#[tokio::test(start_paused = true)]
async fn a_store_that_wrongly_says_it_is_back_is_asked_seldom() {
    let (store, failover) = watchable(Way::Fails(GONE));
    store.is_back.send_replace(true);
    ask_for(&failover, 10 * SECOND).await;
    let questions = store.store.questions();
    assert!((20..=5 + 40).contains(&questions), "{questions}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_is_not_asked_whether_it_is_back() {
    for kind in [StoreErrorKind::Busy, StoreErrorKind::Configuration] {
        let (store, failover) = watchable(Way::Fails(kind));
        store.is_back.send_replace(true);
        ask_for(&failover, 10 * SECOND).await;
        // Pauses of 250, 500, 800, 800 ms and so on, each a fifth shorter; or of five seconds.
        let most = if kind == StoreErrorKind::Busy { 16 } else { 2 };
        let probes = store.store.questions() - 5;
        assert!((1..=most).contains(&probes), "{kind:?}: {probes}");
    }
}
