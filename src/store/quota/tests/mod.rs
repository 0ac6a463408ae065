use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::advance;

use self::fleet::{DEADLINE, Fleet, Subject, ask, in_hand, settle};
use super::{Leased, QuotaLease};
use crate::algorithm::Action;
use crate::error::StoreErrorKind;
use crate::limit::{Limit, per_second};
use crate::store::memory::MemoryStore;
use crate::store::{Answer, Check, Store};
use crate::time::{MINUTE, SECOND};

mod fleet;
mod limits;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Ten permits a millisecond, all of a second at once.
const LIMIT: Limit = Limit::gcra(10_000, SECOND);

fn hot() -> Subject {
    Subject::under(LIMIT, Some(QuotaLease::new()))
}

/// Asks this often, once a millisecond, and lets the batches come.
async fn warm_up<S: Store>(process: &Leased<S>, subject: &Subject, times: u32) {
    for _ in 0..times {
        let decision = ask(process, subject, Action::take(1)).await.unwrap();
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
    ] {
        let (process, way) = Fleet::new().process();
        let subject = Subject::under(limit, Some(QuotaLease::new()));
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
        ask(&process, &hot(), Action::take(1)).await.unwrap();
        settle().await;
        advance(20 * MILLISECOND).await;
    }
    assert_eq!(way.asked(), [Action::take(1); 50]);
}

/// A batch would be over before it has saved a trip.
#[tokio::test(start_paused = true)]
async fn who_uses_little_of_a_high_limit_is_asked_about_each_time() {
    let (process, way) = Fleet::new().process();
    let subject = Subject::under(Limit::gcra(10_000_000, SECOND), Some(QuotaLease::new()));
    warm_up(&process, &subject, 500).await;
    assert_eq!(way.asked(), [Action::take(1); 500]);
}

#[tokio::test(start_paused = true)]
async fn what_a_batch_cannot_answer_is_asked_of_the_store() {
    let (process, way) = Fleet::new().process();
    let subject = hot();
    warm_up(&process, &subject, 100).await;
    assert!(in_hand(&process, &subject, 1).is_some());
    let take = subject.check(Action::take(1));
    let shadow = Check {
        is_shadow: true,
        ..take
    };
    let other = subject.numbered(1);
    let together = [take, other.check(Action::take(1))];
    for checks in [
        &[shadow][..],
        &together,
        &[subject.check(Action::take(5_000))],
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
async fn what_fits_is_not_denied_because_a_batch_does_not() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = Subject::under(
        Limit::fixed_window(100, MINUTE),
        Some(QuotaLease::new().share(1.0)),
    );
    let mut allowed = 0;
    for _ in 0..200 {
        let decision = ask(&process, &subject, Action::take(1)).await.unwrap();
        allowed += u32::from(decision.is_allowed());
        settle().await;
    }
    assert_eq!(allowed, 100);
}

#[tokio::test(start_paused = true)]
async fn what_remains_is_what_is_held_here_and_what_the_store_has() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(QuotaLease::new()));
    for used in 1..=1_000 {
        let decision = ask(&process, &subject, Action::take(1)).await.unwrap();
        assert_eq!(decision.remaining(), 10_000 - used);
        assert_eq!(decision.limit(), 10_000);
        assert!(decision.reset_after() <= MINUTE);
        settle().await;
        let look = ask(&process, &subject, Action::look()).await.unwrap();
        assert_eq!(look.remaining(), 10_000 - used);
        advance(Duration::from_micros(100)).await;
    }
    let held = 9_000 - fleet.look(&subject).remaining();
    assert!((1..=1_000).contains(&held), "{held}");
}

#[tokio::test(start_paused = true)]
async fn no_more_is_held_than_the_share() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let lease = QuotaLease::new().share(0.02);
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(lease));
    for used in 1..=2_000 {
        ask(&process, &subject, Action::take(1)).await.unwrap();
        settle().await;
        let taken = 10_000 - fleet.look(&subject).remaining();
        assert!(taken - used <= 200, "{taken} taken for {used}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_any_more_is_given_back() {
    for limit in [
        Limit::gcra(1_000, MINUTE),
        Limit::fixed_window(1_000, MINUTE),
    ] {
        let fleet = Fleet::new();
        let (process, _) = fleet.process();
        let subject = Subject::under(limit, Some(QuotaLease::new()));
        let mut used = 0;
        while in_hand(&process, &subject, 1).is_none() {
            ask(&process, &subject, Action::take(1)).await.unwrap();
            used += 1;
            settle().await;
        }
        used += 1;
        assert!(fleet.look(&subject).remaining() < 1_000 - used);
        tokio::time::sleep(350 * MILLISECOND).await;
        let back = 350 * 1_000 / 60_000;
        let remaining = fleet.look(&subject).remaining();
        assert!(
            (1_000 - used..=1_000 - used + back).contains(&remaining),
            "{limit:?}: {remaining} after {used}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_given_back_when_the_limiter_ends() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(QuotaLease::new()));
    warm_up(&process, &subject, 500).await;
    assert!(fleet.look(&subject).remaining() < 9_500);
    drop(process);
    settle().await;
    assert_eq!(fleet.look(&subject).remaining(), 9_500);
}

/// Those of a process that was killed are as good as used.
#[tokio::test(start_paused = true)]
async fn what_is_not_given_back_comes_back_with_time() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = hot();
    warm_up(&process, &subject, 500).await;
    way.is_cut.store(true, Ordering::SeqCst);
    drop(process);
    settle().await;
    let missing = 10_000 - fleet.look(&subject).remaining();
    assert!((1..=1_000).contains(&missing), "{missing}");
    advance(100 * MILLISECOND).await;
    assert_eq!(fleet.look(&subject).remaining(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn permits_in_hand_outlast_the_store_until_they_are_too_old() {
    let (process, way) = Fleet::new().process();
    let lease = QuotaLease::new().max_age(500 * MILLISECOND);
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(lease));
    warm_up(&process, &subject, 500).await;
    way.fails.store(true, Ordering::SeqCst);
    let mut in_hand_for = Duration::ZERO;
    while in_hand(&process, &subject, 1).is_some() {
        // Often enough that it is not idle, and seldom enough that there are some left.
        settle().await;
        advance(10 * MILLISECOND).await;
        in_hand_for += 10 * MILLISECOND;
    }
    assert!(in_hand_for >= 50 * MILLISECOND, "{in_hand_for:?}");
    assert!(in_hand_for <= 510 * MILLISECOND, "{in_hand_for:?}");
    let error = ask(&process, &subject, Action::take(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_lost_on_its_way_holds_nobody_up() {
    let (process, way) = Fleet::new().process();
    let subject = hot();
    warm_up(&process, &subject, 9).await;
    *way.back.lock().unwrap() = 2 * DEADLINE;
    for _ in 0..50 {
        ask(&process, &subject, Action::take(1)).await.unwrap();
        advance(MILLISECOND).await;
    }
    *way.back.lock().unwrap() = Duration::ZERO;
    warm_up(&process, &subject, 200).await;
    assert!(in_hand(&process, &subject, 1).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reset_lets_go_of_what_is_held() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(QuotaLease::new()));
    warm_up(&process, &subject, 500).await;
    ask(&process, &subject, Action::Reset).await.unwrap();
    assert!(in_hand(&process, &subject, 1).is_none());
    settle().await;
    drop(process);
    settle().await;
    assert_eq!(fleet.look(&subject).remaining(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_a_limit_that_was_changed_is_given_back() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let old = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(QuotaLease::new()));
    warm_up(&process, &old, 500).await;
    let new = Subject::under(Limit::fixed_window(20_000, MINUTE), Some(QuotaLease::new()));
    let decision = ask(&process, &new, Action::take(1)).await.unwrap();
    assert_eq!(decision.limit(), 20_000);
    settle().await;
    assert_eq!(fleet.look(&new).remaining(), 20_000 - 501);
}

/// As a request does that goes away while another policy holds it up.
#[tokio::test(start_paused = true)]
async fn what_was_taken_is_not_refunded_under_permits_that_others_hold() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = hot();
    let mine = ask(&process, &subject, Action::take(100)).await.unwrap();
    let refund = Action::Refund {
        permits: 100,
        receipt: mine.receipt(),
    };
    let others = fleet.memory.decide(&[subject.check(Action::take(10))]);
    assert!(others.unwrap().all_allow());
    ask(&process, &subject, refund).await.unwrap();
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 110);

    let last = ask(&process, &subject, Action::take(100)).await.unwrap();
    let refund = Action::Refund {
        permits: 100,
        receipt: last.receipt(),
    };
    ask(&process, &subject, refund).await.unwrap();
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 110);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_subjects_drives_out_none_whose_permits_are_held() {
    let (process, way) = Fleet::new().process();
    let subject = hot();
    warm_up(&process, &subject, 200).await;
    for number in 1..20_000 {
        let other = subject.numbered(number);
        ask(&process, &other, Action::take(1)).await.unwrap();
    }
    way.asked();
    assert!(in_hand(&process, &subject, 1).is_some());
    assert_eq!(way.asked(), []);
}

#[tokio::test]
async fn of_a_store_that_answers_at_once_nothing_is_taken_in_advance() {
    let store = MemoryStore::new();
    let process = Leased::new(store.clone(), DEADLINE);
    let subject = Subject::under(Limit::fixed_window(10_000, MINUTE), Some(QuotaLease::new()));
    for used in 1..=1_000 {
        ask(&process, &subject, Action::take(1)).await.unwrap();
        let look = store.decide(&[subject.check(Action::look())]).unwrap()[0];
        assert_eq!(look.remaining(), 10_000 - used);
    }
}

/// Had it given back what it holds, others could take it a second time: permits that were taken
/// after it are paid back no sooner for that.
#[tokio::test(start_paused = true)]
async fn what_one_process_gives_back_is_not_there_twice() {
    let fleet = Fleet::new();
    let (early, _) = fleet.process();
    let (late, _) = fleet.process();
    let lease = QuotaLease::new().share(0.4).max_age(2 * SECOND);
    let subject = Subject::under(Limit::gcra(1_000, SECOND), Some(lease));
    for process in [&early, &late] {
        for _ in 0..200 {
            ask(process, &subject, Action::take(1)).await.unwrap();
            settle().await;
        }
    }
    let owed = 1_000 - u64::from(fleet.look(&subject).remaining());
    // One falls silent, and its time to give back comes.
    for _ in 0..7 {
        tokio::time::sleep(50 * MILLISECOND).await;
        assert!(in_hand(&late, &subject, 1).is_some());
    }
    // A moment before all is paid back.
    let rest = Duration::from_millis(owed - 20) - 350 * MILLISECOND;
    tokio::time::sleep(rest).await;
    let drained = fleet.look(&subject).remaining();
    let take = subject.check(Action::take(drained));
    assert!(fleet.memory.decide(&[take]).unwrap().all_allow());
    let mut late_ones = 0;
    while in_hand(&late, &subject, 1).is_some() {
        late_ones += 1;
    }
    assert!(late_ones > 0);
    assert!(drained + late_ones <= 1_000, "{drained} and {late_ones}");
}
