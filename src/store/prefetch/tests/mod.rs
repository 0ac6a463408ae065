use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::advance;

use self::fleet::{DEADLINE, Fleet, Subject, Way, ask, in_hand, settle};
use super::{Prefetch, Prefetching};
use crate::algorithm::{Acquire, Action, Wait};
use crate::decision::Outcome;
use crate::error::StoreErrorKind;
use crate::limit::{Limit, per_second};
use crate::store::memory::MemoryStore;
use crate::store::{Answer, Check, Store};
use crate::task::InFlightWork;
use crate::time::{MINUTE, SECOND};

mod accounts;
mod changes;
mod fleet;
mod flush;
mod giving_back;
mod history;
mod idle;
mod limits;
mod pauses;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Ten permits a millisecond, and a second's worth at once.
const LIMIT: Limit = Limit::gcra(10_000, SECOND);

fn hot() -> Subject {
    Subject::under(LIMIT, Some(Prefetch::new()))
}

/// Ten thousand permits in each minute, which come back all at once.
fn windowed() -> Subject {
    Subject::under(Limit::fixed_window(10_000, MINUTE), Some(Prefetch::new()))
}

/// Asks this many times, once a millisecond, and lets the batches arrive.
async fn warm_up<S: Store>(process: &Prefetching<S>, subject: &Subject, times: u64) {
    for _ in 0..times {
        let decision = ask(process, subject, Action::acquire(1)).await.unwrap();
        assert!(decision.is_allowed());
        settle().await;
        advance(MILLISECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_subject_that_is_often_asked_for_takes_few_trips() {
    for limit in [
        Limit::gcra(10_000, SECOND),
        Limit::token_bucket(10_000, per_second(10_000)),
        Limit::leaky_bucket(10_000, per_second(10_000)).without_delay(),
        Limit::fixed_window(10_000, SECOND),
        #[cfg(feature = "calendar")]
        Limit::calendar(10_000, crate::limit::Calendar::day()),
    ] {
        let (process, way) = Fleet::new().process();
        let subject = Subject::under(limit, Some(Prefetch::new()));
        warm_up(&process, &subject, 100).await;
        let before = way.trips();
        warm_up(&process, &subject, 2_000).await;
        let trips = way.trips() - before;
        assert!((1..=200).contains(&trips), "{limit:?}: {trips} trips");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subject_that_is_seldom_asked_for_is_asked_about_each_time() {
    let (process, way) = Fleet::new().process();
    for _ in 0..50 {
        let _ = ask(&process, &hot(), Action::acquire(1)).await.unwrap();
        settle().await;
        advance(20 * MILLISECOND).await;
    }
    assert_eq!(way.asked(), [Action::acquire(1); 50]);
}

/// A batch would be over before it has saved a round trip.
#[tokio::test(start_paused = true)]
async fn a_subject_that_uses_little_of_a_high_limit_takes_no_batches() {
    let (process, way) = Fleet::new().process();
    let subject = Subject::under(Limit::gcra(10_000_000, SECOND), Some(Prefetch::new()));
    warm_up(&process, &subject, 500).await;
    assert_eq!(way.asked(), [Action::acquire(1); 500]);
}

/// Each batch taken and given back would lose its permits if somebody else takes some in between.
#[tokio::test(start_paused = true)]
async fn over_a_store_that_answers_at_once_there_are_no_batches() {
    struct AtOnce(MemoryStore, Mutex<Vec<Action>>);

    impl Store for AtOnce {
        fn ask(&self, checks: &[Check<'_>]) -> Answer {
            let actions = checks.iter().map(|check| check.action);
            self.1.lock().unwrap().extend(actions);
            self.0.ask(checks)
        }
    }

    let (Fleet { clock, memory }, subject) = (Fleet::new(), hot());
    let store = Arc::new(AtOnce(memory, Mutex::default()));
    let in_flight_work = InFlightWork::default();
    let process = Prefetching::with_clock(Arc::clone(&store), DEADLINE, in_flight_work, clock);
    for _ in 0..500 {
        let decision = in_hand(&process, &subject, 1).expect("no trip");
        assert!(decision.is_allowed() && !decision.is_prefetched());
        advance(MILLISECOND).await;
    }
    assert_eq!(*store.1.lock().unwrap(), [Action::acquire(1); 500]);
}

/// As documented in docs/prefetch.md.
#[tokio::test(start_paused = true)]
async fn the_higher_the_limit_the_smaller_a_part_of_it_has_batches() {
    for (a_second, too_little, enough) in
        [(100_000, 900, 2_000), (10_000, 250, 500), (1_000, 90, 200)]
    {
        for (used_a_second, has_batches) in [(too_little, false), (enough, true)] {
            let (process, way) = Fleet::new().process();
            let limit = Limit::gcra(a_second, SECOND);
            let subject = Subject::under(limit, Some(Prefetch::new()));
            for _ in 0..used_a_second {
                let decision = ask(&process, &subject, Action::acquire(1)).await.unwrap();
                assert!(decision.is_allowed());
                settle().await;
                advance(SECOND / used_a_second).await;
            }
            let asked_for_more = |action: &Action| *action != Action::acquire(1);
            let has_had = way.asked().iter().any(asked_for_more);
            assert_eq!(has_had, has_batches, "{used_a_second} of {a_second}");
        }
    }
}

/// However many of its permits come back before it arrives; also for a process that is slow or
/// becomes slow.
#[tokio::test(start_paused = true)]
async fn a_batch_outlasts_its_trip() {
    let (process, way) = Fleet::new().process();
    let subject = Subject::under(Limit::gcra(10_000_000, SECOND), Some(Prefetch::new()));
    for (trip, expected) in [(0, 95), (4, 90), (8, 90), (24, 90), (0, 95)] {
        for time in [&way.there, &way.back] {
            *time.lock().unwrap() = trip / 2 * MILLISECOND;
        }
        let (mut in_hand, mut pending) = (0, JoinSet::new());
        for number in 0..20_000 {
            match process.ask(&[subject.check(Action::acquire(1))]) {
                Answer::Ready(_) if number >= 10_000 => in_hand += 1,
                Answer::Ready(_) => {}
                Answer::Pending(answer) => drop(pending.spawn(answer)),
            }
            settle().await;
            advance(Duration::from_micros(20)).await;
        }
        let part = in_hand / 100;

        assert!(part >= expected, "{part} % of {trip} ms");
    }
}

/// It needs no batches, whatever its other questions take.
#[tokio::test(start_paused = true)]
async fn a_batch_that_needed_no_trip_is_given_back() {
    struct BatchesAtOnce(Arc<Way>);

    impl Store for BatchesAtOnce {
        fn ask(&self, checks: &[Check<'_>]) -> Answer {
            let answer = self.0.ask(checks);
            match answer {
                Answer::Pending(answer) if checks[0].action.acquires() > 1 => {
                    Answer::Ready(answer.now_or_never().expect("no time passes"))
                }
                answer => answer,
            }
        }
    }

    let (fleet, subject) = (Fleet::new(), windowed());
    let (_, way) = fleet.process();
    let (store, in_flight_work) = (BatchesAtOnce(Arc::clone(&way)), InFlightWork::default());
    let process = Prefetching::with_clock(store, DEADLINE, in_flight_work, fleet.clock);
    warm_up(&process, &subject, 100).await;
    let has_had = way.asked().iter().any(|action| action.acquires() > 1);
    assert!(has_had, "no batch was asked for");
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 100);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_a_batch_cannot_answer_is_asked_of_the_store() {
    let (process, way) = Fleet::new().process();
    let subject = hot();
    warm_up(&process, &subject, 100).await;
    assert!(in_hand(&process, &subject, 1).is_some());
    let take = subject.check(Action::acquire(1));
    let shadow = Check {
        is_shadow: true,
        ..take
    };
    let waits = subject.check(Action::Acquire(Acquire {
        cost: 1,
        wait: Wait::Burst(MINUTE.into()),
        lease: None,
        is_final: false,
        takes_fewer: false,
    }));
    let other = subject.numbered(1);
    let together = [take, other.check(Action::acquire(1))];
    for checks in [
        &[shadow][..],
        &[waits],
        &together,
        &[subject.check(Action::acquire(5_000))],
    ] {
        way.asked();
        let Answer::Pending(answer) = process.ask(checks) else {
            panic!("answered from a batch: {checks:?}");
        };
        answer.await.unwrap();
        let actions: Vec<_> = checks.iter().map(|check| check.action).collect();
        assert_eq!(way.asked(), actions);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_fits_is_not_denied_because_a_batch_does_not() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = Subject::under(
        Limit::fixed_window(100, MINUTE),
        Some(Prefetch::new().share(1.0)),
    );
    let mut allowed = 0;
    for _ in 0..200 {
        let decision = ask(&process, &subject, Action::acquire(1)).await.unwrap();
        allowed += u64::from(decision.is_allowed());
        settle().await;
    }
    assert_eq!(allowed, 100);
}

#[tokio::test(start_paused = true)]
async fn remaining_permits_are_those_held_here_and_those_in_the_store() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = windowed();
    let step = Duration::from_micros(100);
    for used in 1..=1_000 {
        let decision = ask(&process, &subject, Action::acquire(1)).await.unwrap();
        assert_eq!(decision.remaining(), 10_000 - u64::from(used));
        assert_eq!(decision.limit(), 10_000);
        // Not what held when the batch was taken.
        let left = MINUTE - (used - 1) * step;
        assert_eq!(decision.reset_after(), left, "{used}");
        assert_eq!(decision.renews_after, left.into(), "{used}");
        settle().await;
        for action in [Action::look(), Action::consume(0)] {
            let look = ask(&process, &subject, action).await.unwrap();
            assert_eq!(look.remaining(), 10_000 - u64::from(used));
        }
        advance(step).await;
    }
    let held = 9_000 - fleet.look(&subject).remaining();
    assert!((1..=1_000).contains(&held), "{held}");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_here_remains_after_a_question_that_it_is_too_little_for() {
    let (process, _) = Fleet::new().process();
    let subject = windowed();
    warm_up(&process, &subject, 100).await;
    assert!(in_hand(&process, &subject, 1).is_some());
    settle().await;
    let decision = ask(&process, &subject, Action::acquire(5_000))
        .await
        .unwrap();
    assert!(!decision.is_prefetched());
    assert_eq!(decision.remaining(), 10_000 - 101 - 5_000);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_here_keeps_the_limit_from_being_near() {
    for (cost, left, is_near) in [(7_999, 1_001, false), (8_000, 1_000, true)] {
        let fleet = Fleet::new();
        let (process, _) = fleet.process();
        let subject = windowed();
        warm_up(&process, &subject, 1_000).await;
        let decision = ask(&process, &subject, Action::acquire(cost))
            .await
            .unwrap();
        assert!(decision.is_allowed() && !decision.is_prefetched());
        assert_eq!(decision.remaining(), left);
        assert_eq!(decision.is_near_limit, is_near, "{left} left");
        let left_to_others = fleet.look(&subject).remaining();
        assert!(left_to_others < 1_000, "{left_to_others}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_from_a_batch_tells_that_the_limit_is_near() {
    let (process, _) = Fleet::new().process();
    let subject = Subject::under(Limit::fixed_window(1_000, MINUTE), Some(Prefetch::new()));
    let mut from_batches = [0, 0];
    for _ in 0..1_000 {
        let decision = ask(&process, &subject, Action::acquire(1)).await.unwrap();
        let is_near = decision.remaining() <= 100;
        assert_eq!(decision.is_near_limit, is_near, "{}", decision.remaining());
        from_batches[usize::from(is_near)] += u64::from(decision.is_prefetched());
        settle().await;
        advance(Duration::from_micros(100)).await;
    }
    assert!(
        from_batches.iter().all(|&number| number > 0),
        "{from_batches:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_is_held_than_the_share() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let prefetch = Prefetch::new().share(0.02);
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(prefetch));
    for used in 1..=2_000 {
        let _ = ask(&process, &subject, Action::acquire(1)).await.unwrap();
        settle().await;
        let taken = 10_000 - fleet.look(&subject).remaining();
        assert!(taken - used <= 200, "{taken} taken for {used}");
    }
}

/// Otherwise anybody who names such a cost, and is denied, would have each process keep its whole
/// share from the others.
#[tokio::test(start_paused = true)]
async fn a_cost_that_no_batch_can_answer_makes_none_larger() {
    for (cost, outcome) in [(5_000, Outcome::Denied), (10_001, Outcome::NeverFits)] {
        let (process, way) = Fleet::new().process();
        let subject = windowed();
        let most = ask(&process, &subject, Action::acquire(6_000))
            .await
            .unwrap();
        assert!(most.is_allowed());
        for _ in 0..100 {
            let denied = ask(&process, &subject, Action::acquire(cost))
                .await
                .unwrap();
            assert_eq!(denied.outcome(), outcome);
            warm_up(&process, &subject, 5).await;
        }
        let batches = way.asked().into_iter().map(|action| action.acquires());
        let largest = batches.filter(|permits| *permits < cost.min(6_000)).max();
        // What is asked for in a tenth of a second.
        assert!((8..=101).contains(&largest.unwrap()), "{largest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn permits_in_hand_outlast_the_store_until_they_are_too_old() {
    let (process, way) = Fleet::new().process();
    let prefetch = Prefetch::new().max_age(500 * MILLISECOND);
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(prefetch));
    warm_up(&process, &subject, 500).await;
    way.fails.store(true, Ordering::SeqCst);
    let mut in_hand_for = Duration::ZERO;
    while in_hand(&process, &subject, 1).is_some() {
        // Often enough not to be idle, and seldom enough to leave some permits.
        settle().await;
        advance(10 * MILLISECOND).await;
        in_hand_for += 10 * MILLISECOND;
    }
    assert!(in_hand_for >= 50 * MILLISECOND, "{in_hand_for:?}");
    assert!(in_hand_for <= 510 * MILLISECOND, "{in_hand_for:?}");
    let error = ask(&process, &subject, Action::acquire(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_lost_on_its_way_holds_nobody_up() {
    let (process, way) = Fleet::new().process();
    let subject = hot();
    warm_up(&process, &subject, 9).await;
    *way.back.lock().unwrap() = 2 * DEADLINE;
    for _ in 0..50 {
        let _ = ask(&process, &subject, Action::acquire(1)).await.unwrap();
        advance(MILLISECOND).await;
    }
    *way.back.lock().unwrap() = Duration::ZERO;
    warm_up(&process, &subject, 200).await;
    assert!(in_hand(&process, &subject, 1).is_some());
}

#[tokio::test]
async fn no_prefetch_from_a_store_that_answers_at_once() {
    let store = MemoryStore::new();
    let process = Prefetching::new(store.clone(), DEADLINE, InFlightWork::default());
    let subject = windowed();
    for used in 1..=1_000 {
        let _ = ask(&process, &subject, Action::acquire(1)).await.unwrap();
        let look = store.decide(&[subject.check(Action::look())]).unwrap()[0];
        assert_eq!(look.remaining(), 10_000 - used);
    }
}
