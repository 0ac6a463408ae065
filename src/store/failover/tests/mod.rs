use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use futures_util::FutureExt as _;

use super::breaker::AnswerGuard;
use super::*;
use crate::algorithm::{Action, Algorithm, Ask, Penalty};
use crate::decision::{Decision, Outcome};
use crate::error::StoreError;
use crate::key::Key;
use crate::limit::Limit;
use crate::observer::BreakerState;
use crate::store::{FailureMode, PolicyId};
use crate::time::{HOUR, MINUTE, Micros, SECOND};

mod breaker;
mod circuit;
#[cfg(feature = "memory")]
mod local;
mod recovery;
mod standstill;

/// The instant at which stores of these tests decide.
const NOW: Micros = Micros::new(1_000_000);

/// What a store of these tests answers.
#[derive(Clone, Copy)]
enum Way {
    Works,
    Fails(StoreErrorKind),
    FailsAtOnce(StoreErrorKind),
    WorksAtOnce,
    Hangs,
    AnswersTooLittle,
    AnswersTooLittleAtOnce,
    Panics,
    PanicsLate,
}

/// Records what it is asked, and counts nothing.
struct Scripted {
    way: Mutex<Way>,
    asked: Mutex<Vec<Vec<Action>>>,
    questions: AtomicUsize,
}

fn over(way: Way) -> (Arc<Scripted>, Failover) {
    let store = Arc::new(Scripted {
        way: Mutex::new(way),
        asked: Mutex::default(),
        questions: AtomicUsize::default(),
    });
    let deadline = Duration::from_millis(50);
    let failover = Failover::new(store.clone(), deadline, Arc::new(()), Observers::default());
    (store, failover)
}

impl Scripted {
    fn now(&self, way: Way) {
        *self.way.lock().unwrap() = way;
    }

    /// What it was asked to do since the last call.
    fn asked(&self) -> Vec<Vec<Action>> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

impl Store for Scripted {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let actions = checks.iter().map(|check| check.action).collect();
        self.asked.lock().unwrap().push(actions);
        let fits = |check: &Check<'_>| {
            let state = check.algorithm.untouched();
            check.algorithm.read(&state, NOW, &check.action)
        };
        let readings: Vec<_> = checks.iter().map(fits).collect();
        let asked = checks
            .iter()
            .map(|check| Ask::enforced(&check.algorithm, &check.action));
        let decisions = crate::algorithm::decide(asked, &readings);
        let too_little = || Ok(decisions.iter().skip(1).copied().collect());
        let way = *self.way.lock().unwrap();
        let answer = match way {
            Way::WorksAtOnce => return Answer::Ready(Ok(decisions)),
            Way::FailsAtOnce(kind) => return Answer::Ready(Err(StoreError::new(kind))),
            Way::AnswersTooLittleAtOnce => return Answer::Ready(too_little()),
            Way::Panics => panic!("in the store"),
            Way::PanicsLate => {
                return Answer::Pending(Box::pin(async { panic!("in the store") }));
            }
            Way::Hangs => return Answer::Pending(Box::pin(std::future::pending())),
            Way::Works => Ok(decisions),
            Way::Fails(kind) => Err(StoreError::new(kind)),
            Way::AnswersTooLittle => too_little(),
        };
        Answer::Pending(Box::pin(async { answer }))
    }
}

/// One check of a question.
struct Asked {
    policy: PolicyId,
    algorithm: Algorithm,
    action: Action,
    mode: FailureMode,
    is_shadow: bool,
}

fn check(policy: &str, limit: Limit, mode: FailureMode) -> Asked {
    Asked {
        policy: PolicyId::new(policy),
        algorithm: Algorithm::try_from(&limit).unwrap(),
        action: Action::acquire(1),
        mode,
        is_shadow: false,
    }
}

impl Asked {
    fn to(self, action: Action) -> Self {
        Self { action, ..self }
    }

    fn penalty(&self, penalty: &Penalty) -> Self {
        Self {
            policy: self.policy.clone(),
            algorithm: Algorithm::try_from(penalty).unwrap(),
            ..*self
        }
    }
}

async fn ask(failover: &impl Store, asked: &[Asked]) -> Decisions {
    match question(failover, asked) {
        Answer::Ready(answer) => answer.unwrap(),
        Answer::Pending(answer) => answer.await.unwrap(),
    }
}

fn question(failover: &impl Store, asked: &[Asked]) -> Answer {
    let checks = asked.iter().map(|asked| Check {
        policy: &asked.policy,
        subject: Key::from("alice").subject(None),
        algorithm: asked.algorithm,
        action: asked.action,
        is_shadow: asked.is_shadow,
        on_store_failure: asked.mode,
    });
    failover.ask(&checks.collect::<Vec<_>>())
}

fn outcomes(decisions: &Decisions) -> Vec<Outcome> {
    decisions.iter().map(Decision::outcome).collect()
}

const GONE: StoreErrorKind = StoreErrorKind::Unreachable;

fn one(mode: FailureMode) -> [Asked; 1] {
    [check("api", Limit::gcra(10, MINUTE), mode)]
}

async fn open(failover: &Failover) {
    while failover.breaker().state() == BreakerState::Closed {
        ask(failover, &one(FailureMode::Allow)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_when_it_is_probed_is_probed_again() {
    let (store, failover) = over(Way::Fails(GONE));
    open(&failover).await;
    tokio::time::sleep(SECOND).await;
    store.now(Way::Panics);
    let probe = || question(&failover, &one(FailureMode::Deny));
    for _ in 0..3 {
        let probed = catch_unwind(AssertUnwindSafe(probe));
        assert!(probed.is_err(), "it was asked");
    }
    store.now(Way::Works);
    let back = ask(&failover, &one(FailureMode::Deny)).await;
    assert_eq!(outcomes(&back), [Outcome::Allowed]);
    assert_eq!(failover.breaker().state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn while_the_breaker_is_open_failure_modes_answer_alone() {
    let (store, failover) = over(Way::Fails(GONE));
    open(&failover).await;
    assert_eq!(store.questions(), 5);
    for mode in [FailureMode::Allow, FailureMode::Deny] {
        let Answer::Ready(Ok(decisions)) = question(&failover, &one(mode)) else {
            panic!("it takes a trip");
        };
        let failure = decisions[0].store_failure();
        assert_eq!(failure, Some(StoreErrorKind::BreakerOpen));
        assert_eq!(decisions[0].is_allowed(), mode == FailureMode::Allow);
    }
    assert_eq!(store.questions(), 5);
    store.now(Way::Works);
    tokio::time::sleep(SECOND).await;
    let back = ask(&failover, &one(FailureMode::Deny)).await;
    assert_eq!(outcomes(&back), [Outcome::Allowed]);
    assert_eq!(failover.breaker().state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn late_and_short_answers_open_it_too() {
    for (way, kind) in [
        (Way::Hangs, StoreErrorKind::TimedOut),
        (Way::AnswersTooLittle, StoreErrorKind::BadReply),
    ] {
        let (_, failover) = over(way);
        for _ in 0..5 {
            let decisions = ask(&failover, &one(FailureMode::Deny)).await;
            assert_eq!(outcomes(&decisions), [Outcome::FailedClosed(kind)]);
        }
        assert_eq!(failover.breaker().state(), BreakerState::Open);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_take_no_trip_neither_open_it_nor_close_it() {
    let (store, failover) = over(Way::FailsAtOnce(GONE));
    for way in [Way::FailsAtOnce(GONE), Way::AnswersTooLittleAtOnce] {
        store.now(way);
        for _ in 0..100 {
            let decisions = ask(&failover, &one(FailureMode::Deny)).await;
            assert!(!decisions.all_allow());
        }
        assert_eq!(failover.breaker().state(), BreakerState::Closed);
    }
    store.now(Way::Fails(GONE));
    open(&failover).await;
    store.now(Way::WorksAtOnce);
    tokio::time::sleep(SECOND).await;
    let remembered = ask(&failover, &one(FailureMode::Deny)).await;
    assert_eq!(outcomes(&remembered), [Outcome::Allowed]);
    assert_eq!(failover.breaker().state(), BreakerState::Open);
}

/// Remembers fewer checks than it is asked about.
struct Forgetful;

impl Store for Forgetful {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Err(StoreError::new(GONE)))
    }

    fn remembered(&self, _: &[Check<'_>]) -> Option<Decisions> {
        Some(Decisions::default())
    }
}

#[tokio::test(start_paused = true)]
async fn a_memory_of_too_few_checks_decides_none() {
    let failover = Failover::new(
        Arc::new(Forgetful),
        Duration::from_millis(50),
        Arc::new(()),
        Observers::default(),
    );
    let decisions = ask(&failover, &one(FailureMode::Deny)).await;
    assert_eq!(outcomes(&decisions), [Outcome::FailedClosed(GONE)]);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_before_it_is_sent_lets_the_next_question_probe() {
    let (store, failover) = over(Way::Fails(GONE));
    open(&failover).await;
    tokio::time::sleep(SECOND).await;
    store.now(Way::Works);
    let probe = question(&failover, &one(FailureMode::Deny));
    assert_eq!(failover.breaker().state(), BreakerState::HalfOpen);
    drop(probe);
    assert_eq!(failover.breaker().state(), BreakerState::Open);
    let back = ask(&failover, &one(FailureMode::Deny)).await;
    assert_eq!(outcomes(&back), [Outcome::Allowed]);
}

/// A probe of a store that hangs, asked a second after the breaker has opened.
async fn hanging_probe(store: &Scripted, failover: &Failover) -> PendingAnswer {
    open(failover).await;
    tokio::time::sleep(SECOND).await;
    store.now(Way::Hangs);
    let Answer::Pending(mut probe) = question(failover, &one(FailureMode::Deny)) else {
        panic!("a probe takes a trip");
    };
    assert!(futures_util::poll!(probe.as_mut()).is_pending());
    probe
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_on_its_way_goes_on_to_its_deadline() {
    let (store, failover) = over(Way::Fails(GONE));
    drop(hanging_probe(&store, &failover).await);
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(failover.breaker().state(), BreakerState::HalfOpen);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(failover.breaker().state(), BreakerState::Open);
}

#[test]
fn a_probe_that_loses_its_runtime_lets_the_next_question_probe() {
    for is_dropped_before in [true, false] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let (store, failover) = over(Way::Fails(GONE));
        let mut probe = Some(runtime.block_on(hanging_probe(&store, &failover)));
        if is_dropped_before {
            let _inside = runtime.enter();
            probe = None;
        }
        drop(runtime);
        drop(probe);
        assert_eq!(failover.breaker().state(), BreakerState::Open);
    }
}

/// Its future must not be polled again.
#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_on_its_way_ends_there_and_the_next_question_probes() {
    let (store, failover) = over(Way::Fails(GONE));
    open(&failover).await;
    tokio::time::sleep(SECOND).await;
    store.now(Way::PanicsLate);
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let asked = one(FailureMode::Deny);
    let probed = AssertUnwindSafe(ask(&failover, &asked));
    let probed = probed.catch_unwind().await;
    assert!(probed.is_err(), "it was asked");
    assert_eq!(tasks(), before, "nobody goes on with it");
    assert_eq!(failover.breaker().state(), BreakerState::Open);
    store.now(Way::Works);
    let back = ask(&failover, &one(FailureMode::Deny)).await;
    assert_eq!(outcomes(&back), [Outcome::Allowed]);
}

/// While it is asked, another question begins to probe.
#[derive(Default)]
struct Overtaken {
    breaker: OnceLock<ShardedArc<Breaker>>,
    other: Mutex<Option<AnswerGuard>>,
    is_polled: Arc<AtomicBool>,
}

impl Store for Overtaken {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        let other = self
            .breaker
            .get()
            .and_then(|breaker| Breaker::begin_call(breaker, HOUR));
        *self.other.lock().unwrap() = other;
        let is_polled = Arc::clone(&self.is_polled);
        Answer::Pending(Box::pin(async move {
            is_polled.store(true, Ordering::SeqCst);
            Err(StoreError::new(GONE))
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_another_probe_has_overtaken_is_not_sent() {
    let store = Arc::new(Overtaken::default());
    let deadline = Duration::from_millis(50);
    let failover = Failover::new(store.clone(), deadline, Arc::new(()), Observers::default());
    open(&failover).await;
    tokio::time::sleep(SECOND).await;
    store.is_polled.store(false, Ordering::SeqCst);
    store.breaker.set(failover.breaker.clone()).ok().unwrap();
    let decisions = ask(&failover, &one(FailureMode::Deny)).await;
    let left_alone = Outcome::FailedClosed(StoreErrorKind::BreakerOpen);
    assert_eq!(outcomes(&decisions), [left_alone]);
    assert!(
        store.other.lock().unwrap().is_some(),
        "the other one probes"
    );
    assert!(!store.is_polled.load(Ordering::SeqCst));
}

/// As with a caller that stopped waiting but keeps the future.
#[tokio::test(start_paused = true)]
async fn a_probe_that_nobody_polls_blocks_the_store_for_seconds_only() {
    let (store, failover) = over(Way::Fails(GONE));
    open(&failover).await;
    tokio::time::sleep(SECOND).await;
    store.now(Way::Works);
    let stalled = question(&failover, &one(FailureMode::Deny));
    assert_eq!(failover.breaker().state(), BreakerState::HalfOpen);
    tokio::time::sleep(6 * SECOND).await;
    let back = ask(&failover, &one(FailureMode::Deny)).await;
    assert_eq!(outcomes(&back), [Outcome::Allowed]);
    assert_eq!(failover.breaker().state(), BreakerState::Closed);
    drop(stalled);
    assert_eq!(failover.breaker().state(), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn giving_back_while_it_is_open_fails_at_once() {
    let (store, failover) = over(Way::Fails(GONE));
    open(&failover).await;
    let lease = crate::algorithm::LeaseId::new();
    for action in [Action::Release(lease), Action::Renew(lease), Action::Reset] {
        let limit = Limit::concurrency(1).lease(HOUR);
        let asked = [check("places", limit, FailureMode::Allow).to(action)];
        let Answer::Ready(Ok(decisions)) = question(&failover, &asked) else {
            panic!("it takes a trip");
        };
        let failure = decisions[0].store_failure();
        assert_eq!(failure, Some(StoreErrorKind::BreakerOpen));
    }
    assert_eq!(store.questions(), 5);
}
