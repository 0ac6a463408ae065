//! Resets and credits of a subject of which permits are held.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::fleet::{
    DEADLINE, Fleet, Subject, Way, ask, ask_at_once, ask_for_a_batch, in_hand, settle,
};
use super::{MILLISECOND, warm_up, windowed};
use crate::algorithm::Action;
use crate::limit::Limit;
use crate::store::Store;
use crate::store::prefetch::{Prefetch, Prefetching};
use crate::store::{Answer, PendingAnswer};
use crate::time::{DAY, MINUTE};

const RESET: Action = Action::Reset;
const CREDIT: Action = Action::Credit {
    permits: 3,
    taken_at: None,
};

/// A question that takes a round trip.
fn begin<S: Store>(process: &Prefetching<S>, subject: &Subject, action: Action) -> PendingAnswer {
    match process.ask(&[subject.check(action)]) {
        Answer::Pending(answer) => answer,
        Answer::Ready(_) => panic!("{action:?} without a trip"),
    }
}

/// Begins a change that takes this long to reach the store, unlike what is asked behind it.
async fn begin_late(
    process: &Prefetching<Arc<Way>>,
    way: &Way,
    subject: &Subject,
    change: Action,
    late: Duration,
) -> JoinHandle<<PendingAnswer as Future>::Output> {
    *way.there.lock().unwrap() = late;
    let changed = tokio::spawn(begin(process, subject, change));
    settle().await;
    *way.there.lock().unwrap() = Duration::ZERO;
    changed
}

#[tokio::test(start_paused = true)]
async fn a_reset_lets_go_of_what_is_held() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = windowed();
    warm_up(&process, &subject, 500).await;
    let _ = ask(&process, &subject, RESET).await.unwrap();
    assert!(in_hand(&process, &subject, 1).is_none());
    settle().await;
    drop(process);
    settle().await;
    assert_eq!(fleet.look(&subject).remaining(), 10_000);
}

/// The other processes hear of it when they ask the store.
#[tokio::test(start_paused = true)]
async fn a_hold_lets_go_of_what_is_held_here() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let limit = Limit::gcra(10_000, 366 * DAY);
    let subject = Subject::under(limit, Some(Prefetch::new()));
    warm_up(&process, &subject, 500).await;
    let hold = Action::Hold {
        time: MINUTE.into(),
        permits: 1,
    };
    let _ = ask(&process, &subject, hold).await.unwrap();
    assert!(in_hand(&process, &subject, 1).is_none());
    assert!(
        !ask(&process, &subject, Action::consume(1))
            .await
            .unwrap()
            .is_allowed()
    );
}

/// Otherwise the credit would cover permits that nobody has used, or the permits held could no
/// longer be given back.
#[tokio::test(start_paused = true)]
async fn held_permits_are_given_back_before_a_credit() {
    for limit in [
        Limit::fixed_window(10_000, DAY),
        Limit::gcra(10_000, 366 * DAY),
    ] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let subject = Subject::under(limit, Some(Prefetch::new()));
        warm_up(&process, &subject, 500).await;
        assert!(fleet.look(&subject).remaining() < 9_500);
        *way.back.lock().unwrap() = MILLISECOND;
        let credited = ask(&process, &subject, CREDIT).await.unwrap();
        assert_eq!(credited.remaining(), 9_503, "{limit:?}");
        assert!(in_hand(&process, &subject, 1).is_none());
        assert_eq!(fleet.look(&subject).remaining(), 9_503, "{limit:?}");
    }
}

/// Whether or not the credit was polled, as by a caller with a timeout.
#[tokio::test(start_paused = true)]
async fn held_permits_are_given_back_also_if_nobody_waits_for_the_credit() {
    for time in [None, Some(5 * MILLISECOND)] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let subject = windowed();
        warm_up(&process, &subject, 500).await;
        assert!(fleet.look(&subject).remaining() < 9_500);
        *way.there.lock().unwrap() = 10 * MILLISECOND;
        let credit = begin(&process, &subject, CREDIT);
        match time {
            None => drop(credit),
            Some(time) => drop(timeout(time, credit).await.unwrap_err()),
        }
        sleep(DEADLINE).await;
        assert_eq!(fleet.look(&subject).remaining(), 9_500, "{time:?}");
    }
}

/// The task that asks for the batch resumes only after the change.
#[tokio::test(start_paused = true)]
async fn a_batch_planned_before_a_change_is_not_asked_after_it() {
    for change in [RESET, CREDIT] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let subject = windowed();
        let asked = (0..20).map(|_| begin(&process, &subject, Action::acquire(1)));
        let asked: JoinSet<_> = asked.collect();
        let changed = begin(&process, &subject, change).now_or_never();
        assert!(changed.is_some_and(|answer| answer.is_ok()));
        asked.join_all().await;
        settle().await;
        assert_eq!(fleet.look(&subject).remaining(), 10_000 - 20, "{change:?}");
        let taken = way.asked().into_iter().map(|action| action.acquires());
        assert_eq!(taken.max(), Some(1), "{change:?}");
        // Then batches are taken again.
        warm_up(&process, &subject, 100).await;
        assert!(in_hand(&process, &subject, 1).is_some());
    }
}

/// The batch was held when the rules were replaced. It would be given back from what others have
/// taken since the reset.
#[tokio::test(start_paused = true)]
async fn held_permits_are_given_back_when_the_policy_no_longer_prefetches() {
    let limit = Limit::fixed_window(10_000, DAY).aligned();
    let prefetched = Subject::under(limit, Some(Prefetch::new()));
    let without = Subject::under(limit, None);
    for (change, remaining) in [(RESET, 10_000), (CREDIT, 9_503)] {
        let fleet = Fleet::new();
        let (process, _) = fleet.process();
        warm_up(&process, &prefetched, 500).await;
        assert!(fleet.look(&prefetched).remaining() < 9_500);
        let changed = ask(&process, &without, change).await.unwrap();
        assert_eq!(changed.remaining(), remaining, "{change:?}");
        let others = fleet.memory.decide(&[without.check(Action::acquire(500))]);
        assert!(others.unwrap().all_allow());
        drop(process);
        settle().await;
        let left = fleet.look(&without).remaining();
        assert_eq!(left, remaining - 500, "{change:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_in_flight_at_a_credit_is_given_back() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = windowed();
    let asked = ask_for_a_batch(&process, &way, &subject).await;
    *way.back.lock().unwrap() = Duration::ZERO;
    let _ = ask(&process, &subject, CREDIT).await.unwrap();
    asked.join_all().await;
    settle().await;
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 17);
}

/// It would be given back from what others have taken since, even within the same window.
#[tokio::test(start_paused = true)]
async fn a_batch_in_flight_at_a_reset_is_not_given_back() {
    let limit = Limit::fixed_window(10_000, MINUTE);
    for limit in [limit, limit.aligned()] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let subject = Subject::under(limit, Some(Prefetch::new()));
        let asked = ask_for_a_batch(&process, &way, &subject).await;
        *way.back.lock().unwrap() = Duration::ZERO;
        // No server is asked twice in one instant.
        sleep(MILLISECOND).await;
        let _ = ask(&process, &subject, RESET).await.unwrap();
        let others = fleet.memory.decide(&[subject.check(Action::acquire(500))]);
        assert!(others.unwrap().all_allow());
        asked.join_all().await;
        settle().await;
        let remaining = fleet.look(&subject).remaining();
        assert_eq!(remaining, 10_000 - 500, "{limit:?}");
    }
}

/// It waits for a shared round trip, and the reset goes alone.
#[tokio::test(start_paused = true)]
async fn a_batch_that_a_reset_has_overtaken_is_given_back() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = windowed();
    *way.there.lock().unwrap() = 10 * MILLISECOND;
    let asked = ask_at_once(&process, &subject, 20).await;
    *way.there.lock().unwrap() = Duration::ZERO;
    let _ = ask(&process, &subject, RESET).await.unwrap();
    asked.join_all().await;
    settle().await;
    let taken = way.asked().into_iter().map(|action| action.acquires());
    assert!(taken.max() > Some(1), "none on its way");
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 20);
    assert!(in_hand(&process, &subject, 1).is_none());
}

/// Whether the subject was asked about before, or for the first time then.
#[tokio::test(start_paused = true)]
async fn batches_acquired_during_a_change_are_not_held() {
    for (change, before) in [(RESET, 500), (RESET, 0), (CREDIT, 500), (CREDIT, 0)] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let subject = windowed();
        warm_up(&process, &subject, before).await;
        let late = 10 * MILLISECOND;
        let changed = begin_late(&process, &way, &subject, change, late).await;
        way.asked();
        ask_at_once(&process, &subject, 20).await.join_all().await;
        let in_advance = way.asked().iter().any(|action| action.acquires() > 1);
        assert!(!in_advance, "{change:?} after {before}");
        changed.await.unwrap().unwrap();
        settle().await;
        let credited = match change {
            RESET => before + 20,
            _ => 3,
        };
        let remaining = fleet.look(&subject).remaining();
        assert_eq!(remaining, 10_000 - 20 - before + credited, "{change:?}");
        assert!(in_hand(&process, &subject, 1).is_none());
        // Then batches are taken again.
        warm_up(&process, &subject, 100).await;
        assert!(in_hand(&process, &subject, 1).is_some());
    }
}

/// The first of them begins before anybody has asked about the subject.
#[tokio::test(start_paused = true)]
async fn no_prefetch_until_the_last_of_several_changes_is_done() {
    for changes in [[RESET, RESET], [RESET, CREDIT], [CREDIT, RESET]] {
        let (process, way) = Fleet::new().process();
        let subject = windowed();
        let mut changed = Vec::new();
        for (number, change) in (1..).zip(changes) {
            let late = number * 10 * MILLISECOND;
            changed.push(begin_late(&process, &way, &subject, change, late).await);
            let _ = ask(&process, &subject, Action::acquire(1)).await.unwrap();
        }
        changed.remove(0).await.unwrap().unwrap();
        way.asked();
        ask_at_once(&process, &subject, 20).await.join_all().await;
        assert_eq!(way.asked(), [Action::acquire(1); 20], "{changes:?}");
        changed.remove(0).await.unwrap().unwrap();
        // Then batches are taken again.
        warm_up(&process, &subject, 100).await;
        assert!(in_hand(&process, &subject, 1).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_done_holds_up_no_batch_of_a_subject_asked_for_later() {
    for change in [RESET, CREDIT] {
        let (process, _) = Fleet::new().process();
        let subject = windowed();
        let _ = ask(&process, &subject, change).await.unwrap();
        warm_up(&process, &subject, 100).await;
        assert!(in_hand(&process, &subject, 1).is_some(), "{change:?}");
    }
}

/// A subject can have several limits at a time.
#[tokio::test(start_paused = true)]
async fn no_prefetch_of_another_limit_until_a_change_is_done() {
    let prefetch = Some(Prefetch::new());
    let [changed, other] = [10_000, 20_000].map(|permits| {
        let limit = Limit::fixed_window(permits, MINUTE);
        Subject::under(limit, prefetch)
    });
    for change in [RESET, CREDIT] {
        let (process, way) = Fleet::new().process();
        warm_up(&process, &changed, 500).await;
        let late = 10 * MILLISECOND;
        let in_flight_guard = begin_late(&process, &way, &changed, change, late).await;
        way.asked();
        ask_at_once(&process, &other, 20).await.join_all().await;
        let in_advance = way.asked().iter().any(|action| action.acquires() > 1);
        assert!(!in_advance, "{change:?}");
        in_flight_guard.await.unwrap().unwrap();
        // Then batches are taken again.
        warm_up(&process, &other, 100).await;
        assert!(in_hand(&process, &other, 1).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_nobody_waits_for_holds_up_no_batch() {
    let (process, _) = Fleet::new().process();
    let subject = windowed();
    warm_up(&process, &subject, 500).await;
    for change in [RESET, CREDIT] {
        drop(process.ask(&[subject.check(change)]));
        assert!(in_hand(&process, &subject, 1).is_none());
        warm_up(&process, &subject, 100).await;
        assert!(in_hand(&process, &subject, 1).is_some());
    }
}

/// The policy begins to prefetch while its reset is in flight, as when rules are replaced.
#[tokio::test(start_paused = true)]
async fn no_prefetch_until_a_change_without_prefetch_is_done() {
    let limit = Limit::fixed_window(10_000, MINUTE);
    let prefetched = Subject::under(limit, Some(Prefetch::new()));
    let without = Subject::under(limit, None);
    for change in [RESET, CREDIT] {
        let (process, way) = Fleet::new().process();
        let late = 10 * MILLISECOND;
        let changed = begin_late(&process, &way, &without, change, late).await;
        ask_at_once(&process, &prefetched, 20)
            .await
            .join_all()
            .await;
        assert_eq!(way.asked(), [Action::acquire(1); 20], "{change:?}");
        changed.await.unwrap().unwrap();
        // Then batches are taken again.
        warm_up(&process, &prefetched, 100).await;
        assert!(in_hand(&process, &prefetched, 1).is_some());
    }
}
