//! The breaker that all questions share: who is notified of what, and in which order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::decision::{Decision, Decisions, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::observer::{BreakerState, Observer, Observers};
use crate::sharded::ShardedArc;
use crate::store::failover::breaker::{AnswerGuard, Breaker};
use crate::time::{HOUR, Micros};

/// Records what it is told.
#[derive(Default)]
struct Notes {
    states: Mutex<Vec<BreakerState>>,
    failures: Mutex<Vec<Option<StoreErrorKind>>>,
    /// Queried at each change, as an observer might.
    breaker: OnceLock<ShardedArc<Breaker>>,
}

impl Observer for Notes {
    fn on_store_answer(&self, _: Duration, failure: Option<StoreErrorKind>) {
        self.failures.lock().unwrap().push(failure);
    }

    fn on_breaker(&self, state: BreakerState) {
        self.states.lock().unwrap().push(state);
        if let Some(breaker) = self.breaker.get() {
            let _ = (breaker.may_call(), breaker.outage());
        }
    }
}

fn new(has_parts: bool, observers: Observers) -> ShardedArc<Breaker> {
    let store = "the store".to_owned();
    ShardedArc::new(Breaker::new(has_parts, store, Arc::new(()), observers))
}

fn observed() -> (ShardedArc<Breaker>, Arc<Notes>) {
    observed_of(false)
}

fn observed_of(has_parts: bool) -> (ShardedArc<Breaker>, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let observers = Observers::new(vec![Arc::clone(&notes) as Arc<dyn Observer>]);
    let breaker = new(has_parts, observers);
    notes.breaker.set(breaker.clone()).ok().unwrap();
    (breaker, notes)
}

const DEADLINE: Duration = Duration::from_millis(50);

fn ask(breaker: &ShardedArc<Breaker>) -> Option<AnswerGuard> {
    Breaker::begin_call(breaker, DEADLINE)
}

fn answer(breaker: &ShardedArc<Breaker>, failure: Option<StoreErrorKind>) {
    end(ask(breaker).expect("it may be asked"), failure);
}

fn end(mut guard: AnswerGuard, failure: Option<StoreErrorKind>) {
    match failure {
        Some(why) => guard.failed(Instant::now(), &StoreError::new(why)),
        None => guard.decided(Instant::now(), &Decisions::default()),
    }
}

const FAILED: Option<StoreErrorKind> = Some(StoreErrorKind::Unreachable);

fn open(breaker: &ShardedArc<Breaker>) {
    (0..5).for_each(|_| answer(breaker, FAILED));
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// As with policies about subjects on two nodes, one of which is down.
#[tokio::test]
async fn a_failed_part_is_observed_and_warned_of() {
    let failed = Outcome::FailedOpen(StoreErrorKind::Unreachable);
    let decisions =
        [Outcome::Allowed, failed].map(|outcome| Decision::unasked(outcome, (1, Micros::new(1))));
    for (has_parts, told) in [(false, None), (true, FAILED)] {
        let (breaker, notes) = observed_of(has_parts);
        for _ in 0..10 {
            let mut guard = ask(&breaker).expect("it may be asked");
            guard.decided(Instant::now(), &decisions.into_iter().collect());
        }
        assert_eq!(*notes.failures.lock().unwrap(), [told; 10]);
        let was_warned_of = !breaker.log.warned_of_part.try_warn();
        assert_eq!(was_warned_of, has_parts);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }
}

/// As when too many questions are in flight: this one was never sent and took no time.
#[tokio::test]
async fn observers_get_no_answer_if_the_store_was_not_asked() {
    let (breaker, notes) = observed();
    answer(&breaker, None);
    for _ in 0..10 {
        answer(&breaker, Some(StoreErrorKind::Overloaded));
    }
    assert_eq!(*notes.failures.lock().unwrap(), [None]);
    assert_eq!(breaker.state(), BreakerState::Closed);
}

/// There is no answer left to wait for.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_over_is_not_handed_on() {
    let (breaker, _) = observed();
    open(&breaker);
    tokio::time::advance(DEADLINE * 10).await;
    let mut probe = ask(&breaker).unwrap();
    assert_eq!(breaker.state(), BreakerState::HalfOpen);
    probe.failed(Instant::now(), &StoreError::new(StoreErrorKind::TimedOut));
    assert!(probe.handed_on().is_none());
}

async fn pause() {
    tokio::time::sleep(Duration::from_secs(6)).await;
}

#[tokio::test(start_paused = true)]
async fn observers_get_every_answer_and_change_once_in_order() {
    let (breaker, notes) = observed();
    answer(&breaker, None);
    open(&breaker);
    assert!(ask(&breaker).is_none());
    pause().await;
    answer(&breaker, FAILED);
    pause().await;
    answer(&breaker, None);
    answer(&breaker, Some(StoreErrorKind::CorruptValue));
    use BreakerState::{Closed, HalfOpen, Open};
    let states = [Open, HalfOpen, Open, HalfOpen, Closed];
    assert_eq!(*notes.states.lock().unwrap(), states);
    let failures = notes.failures.lock().unwrap();
    let failed = failures.iter().filter(|failure| **failure == FAILED);
    assert_eq!((failures.len(), failed.count()), (9, 6));
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_client_goes_away_is_not_lost() {
    let (breaker, notes) = observed();
    open(&breaker);
    pause().await;
    for _ in 0..3 {
        let probe = ask(&breaker).expect("a probe");
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(ask(&breaker).is_none(), "one at a time");
        drop(probe);
        assert_eq!(breaker.state(), BreakerState::Open);
    }
    answer(&breaker, None);
    assert_eq!(breaker.state(), BreakerState::Closed);
    assert_eq!(notes.failures.lock().unwrap().len(), 6);
}

#[test]
fn one_of_many_threads_probes_and_changes_are_reported_in_order() {
    let (breaker, notes) = observed();
    let probing = AtomicUsize::new(0);
    for _ in 0..20 {
        open(&breaker);
        let probe = || {
            for _ in 0..200 {
                breaker.recovered();
                // No probe is lost, however slow the machine is.
                if let Some(mut probe) = Breaker::begin_call(&breaker, HOUR) {
                    assert_eq!(probing.fetch_add(1, Ordering::SeqCst), 0);
                    probing.store(0, Ordering::SeqCst);
                    probe.failed(
                        Instant::now(),
                        &StoreError::new(StoreErrorKind::Unreachable),
                    );
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(probe))));
        breaker.recovered();
        answer(&breaker, None);
    }
    let states = notes.states.lock().unwrap();
    let told_twice = states.windows(2).any(|two| two[0] == two[1]);
    assert!(!told_twice, "{states:?}");
    assert!(states.contains(&BreakerState::HalfOpen));
    assert_eq!(states.last(), Some(&BreakerState::Closed));
}

/// A store with parts must know exactly when one of them last worked.
#[tokio::test(start_paused = true)]
async fn a_part_that_fails_within_a_second_of_another_ones_answer_opens_nothing() {
    let (breaker, _notes) = observed_of(true);
    answer(&breaker, None);
    tokio::time::advance(Duration::from_millis(990)).await;
    answer(&breaker, None);
    tokio::time::advance(Duration::from_millis(990)).await;
    (0..100).for_each(|_| answer(&breaker, Some(StoreErrorKind::Busy)));
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[cfg(feature = "redis")]
#[tokio::test(start_paused = true)]
async fn a_part_that_fails_alone_is_warned_of_and_opens_nothing() {
    let whole = StoreError::new(StoreErrorKind::Unreachable);
    for (failure, is_of_part, state) in [
        (whole.clone().of_part(), true, BreakerState::Closed),
        (whole, false, BreakerState::Open),
    ] {
        let (breaker, _) = observed_of(true);
        for _ in 0..5 {
            let mut guard = ask(&breaker).expect("it may be asked");
            guard.failed(Instant::now(), &failure);
        }
        assert_eq!(breaker.state(), state);
        let was_warned_of = !breaker.log.warned_of_part.try_warn();
        assert_eq!(was_warned_of, is_of_part);
    }
}

/// However many there are, they do not show how the store is now.
#[tokio::test(start_paused = true)]
async fn answers_from_before_it_opened_do_not_count_once_it_closed() {
    let breaker = new(false, Observers::default());
    let before: Vec<_> = (0..100).map(|_| ask(&breaker).unwrap()).collect();
    open(&breaker);
    pause().await;
    answer(&breaker, None);
    assert_eq!(breaker.state(), BreakerState::Closed);
    answer(&breaker, None);
    before.into_iter().for_each(|guard| end(guard, None));
    for failure in [FAILED, None].into_iter().cycle().take(18) {
        answer(&breaker, failure);
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    answer(&breaker, FAILED);
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// Nor are those of an earlier second, of which most were counted without the lock.
#[tokio::test(start_paused = true)]
async fn answers_of_an_earlier_second_do_not_outweigh_the_failures_of_this_one() {
    let (breaker, _) = observed();
    (0..100).for_each(|_| answer(&breaker, None));
    pause().await;
    for failure in [FAILED, None].into_iter().cycle().take(19) {
        answer(&breaker, failure);
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    answer(&breaker, FAILED);
    assert_eq!(breaker.state(), BreakerState::Open);
}

/// Those that do not count as failures were in flight all the same.
#[tokio::test(start_paused = true)]
async fn every_change_missed_in_a_standstill_is_reported() {
    let (breaker, notes) = observed();
    let asked = Instant::now();
    let mut guards: Vec<_> = (0..8).map(|_| ask(&breaker).unwrap()).collect();
    pause().await;
    guards
        .iter_mut()
        .for_each(|guard| guard.missed_in_standstill(asked));
    assert_eq!(breaker.state(), BreakerState::Closed);
    let told = notes.failures.lock().unwrap();
    assert_eq!(told.len(), 8);
}

/// Panics when told of a change.
struct Panics;

impl Observer for Panics {
    fn on_breaker(&self, state: BreakerState) {
        panic!("at {state}, as the test wants it to");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_loses_no_probe_and_keeps_no_change_from_others() {
    use BreakerState::{Closed, HalfOpen, Open};
    let notes = Arc::new(Notes::default());
    let told = Arc::clone(&notes) as Arc<dyn Observer>;
    let observers = Observers::new(vec![Arc::new(Panics), told]);
    let breaker = new(false, observers);
    open(&breaker);
    pause().await;
    answer(&breaker, FAILED);
    tokio::time::advance(Duration::from_secs(1)).await;
    let _lost = ask(&breaker).expect("a probe");
    tokio::time::advance(Duration::from_secs(10)).await;
    answer(&breaker, None);
    assert_eq!(breaker.state(), Closed);
    let told = [Open, HalfOpen, Open, HalfOpen, Closed];
    assert_eq!(*notes.states.lock().unwrap(), told);
}

/// Has a store with parts heard again as soon as it is told that it is left alone.
#[derive(Default)]
struct Recovers(OnceLock<ShardedArc<Breaker>>);

impl Observer for Recovers {
    fn on_breaker(&self, state: BreakerState) {
        if state == BreakerState::Open {
            self.0.get().unwrap().recovered();
        }
    }
}

/// Or the others would take the store for failed until its next outage.
#[tokio::test(start_paused = true)]
async fn a_change_caused_by_an_observer_is_observed_next() {
    let (first, notes) = (Arc::new(Recovers::default()), Arc::new(Notes::default()));
    let both: [Arc<dyn Observer>; 2] = [first.clone(), notes.clone()];
    let breaker = new(true, Observers::new(both.to_vec()));
    first.0.set(breaker.clone()).ok().unwrap();
    (0..5).for_each(|_| answer(&breaker, FAILED));
    let told = [BreakerState::Open, BreakerState::Closed];
    assert_eq!(*notes.states.lock().unwrap(), told);
}
