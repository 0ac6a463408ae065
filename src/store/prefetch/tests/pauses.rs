//! A batch that was denied or lost is not asked for again at once: otherwise each question would
//! take two round trips.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tokio::time::advance;

use super::fleet::{DEADLINE, Fleet, Subject, ask, ask_at_once, settle};
use super::{MILLISECOND, Prefetch, Prefetching};
use crate::algorithm::Action;
use crate::error::{StoreError, StoreErrorKind};
use crate::limit::Limit;
use crate::store::{Answer, Check, Store};
use crate::task::InFlightWork;
use crate::time::{HOUR, SECOND};

/// Asks for a permit this many times, once a millisecond. Returns how often there was one.
async fn ask_often<S: Store>(process: &Prefetching<S>, subject: &Subject, times: u64) -> u64 {
    let mut allowed = 0;
    for _ in 0..times {
        let answer = ask(process, subject, Action::acquire(1)).await;
        allowed += u64::from(answer.is_ok_and(|decision| decision.is_allowed()));
        settle().await;
        advance(MILLISECOND).await;
    }
    allowed
}

#[tokio::test(start_paused = true)]
async fn a_denied_subject_takes_hardly_more_trips_than_without_batches() {
    let (process, way) = Fleet::new().process();
    let subject = Subject::under(Limit::fixed_window(500, HOUR), Some(Prefetch::new()));
    assert_eq!(ask_often(&process, &subject, 1_000).await, 500);
    way.asked();
    assert_eq!(ask_often(&process, &subject, 1_000).await, 0);
    let asked = way.asked().len();
    assert!((1_000..=1_100).contains(&asked), "{asked}");
}

/// A store that fails, and counts the batches it was asked for.
struct Failing(Arc<AtomicUsize>);

impl Store for Failing {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        if checks
            .iter()
            .any(|check| check.action != Action::acquire(1))
        {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        let failed = StoreError::new(StoreErrorKind::Unreachable);
        Answer::Pending(Box::pin(std::future::ready(Err(failed))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_hardly_asked_for_batches() {
    let batches = Arc::new(AtomicUsize::new(0));
    let failing = Failing(Arc::clone(&batches));
    let in_flight_work = InFlightWork::default();
    let process = Prefetching::with_clock(failing, DEADLINE, in_flight_work, Fleet::new().clock);
    let subject = Subject::under(Limit::fixed_window(10_000, HOUR), Some(Prefetch::new()));
    assert_eq!(ask_often(&process, &subject, 1_000).await, 0);
    let batches = batches.load(Ordering::SeqCst);
    assert!((1..=100).contains(&batches), "{batches}");
}

/// Whatever each question costs, and however many permits come back while a batch is in flight.
#[tokio::test(start_paused = true)]
async fn a_subject_that_was_denied_takes_batches_again_when_there_is_room() {
    for (cost, trip) in [(1, 0), (2, 0), (5, 0), (1, 1), (2, 1)] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        *way.there.lock().unwrap() = trip * MILLISECOND;
        let subject = Subject::under(Limit::gcra(10_000, SECOND), Some(Prefetch::new()));
        let in_hand = async |times| {
            let mut in_hand = 0;
            for _ in 0..times {
                let answer = ask(&process, &subject, Action::acquire(cost)).await;
                in_hand += u64::from(answer.is_ok_and(|decision| decision.is_prefetched()));
                settle().await;
                advance(MILLISECOND).await;
            }
            in_hand
        };
        let before = in_hand(1_000).await;
        assert!(before >= 500, "{cost} {trip}: {before}");
        // Somebody else uses up everything.
        let all = subject.check(Action::Charge(30_000));
        fleet.memory.decide(&[all]).unwrap();
        in_hand(1_000).await;
        advance(10 * SECOND).await;
        in_hand(1_000).await;
        let again = in_hand(1_000).await;
        assert!(again >= before / 2, "{cost} {trip}: {again} of {before}");
    }
}

/// Each would be given back unused, and its permits would be lost whenever others take some
/// meanwhile. From time to time one finds out whether trips have become shorter.
#[tokio::test(start_paused = true)]
async fn hardly_any_prefetch_if_trips_outlast_the_maximum_age() {
    let (process, way) = Fleet::new().process();
    let prefetch = Prefetch::new().max_age(10 * MILLISECOND);
    let subject = Subject::under(Limit::gcra(10_000, SECOND), Some(prefetch));
    let batches_in_a_second = async || {
        let (mut all, mut in_hand) = (JoinSet::new(), 0);
        for _ in 0..1_000 {
            let asked = ask_at_once(&process, &subject, 5).await;
            all.spawn(asked.join_all());
            advance(MILLISECOND).await;
        }
        for decision in all.join_all().await.into_iter().flatten() {
            in_hand += u64::from(decision.is_prefetched());
        }
        let asked = way.asked().into_iter();
        let batches = asked.filter(|action| action.acquires() > 1).count();
        (batches, in_hand)
    };
    *way.there.lock().unwrap() = 7 * MILLISECOND;
    *way.back.lock().unwrap() = 7 * MILLISECOND;
    let (batches, in_hand) = batches_in_a_second().await;
    assert_eq!(in_hand, 0);
    assert!((1..=10).contains(&batches), "{batches}");
    *way.there.lock().unwrap() = MILLISECOND;
    *way.back.lock().unwrap() = MILLISECOND;
    batches_in_a_second().await;
    let (_, in_hand) = batches_in_a_second().await;
    assert!(in_hand > 2_500, "{in_hand} of 5000");
}
