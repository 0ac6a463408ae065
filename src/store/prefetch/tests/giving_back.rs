//! What is left of batches, and who gets it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::advance;

use super::fleet::{DEADLINE, Fleet, Subject, ask, ask_at_once, ask_for_a_batch, in_hand, settle};
use super::{MILLISECOND, hot, warm_up, windowed};
use crate::algorithm::Action;
use crate::decision::Decision;
use crate::limit::{Limit, per_second};
use crate::store::Store;
use crate::store::prefetch::{Prefetch, Prefetching};
use crate::time::{DAY, MINUTE, SECOND};

/// Longer than a batch is awaited.
const STANDSTILL: Duration = DEADLINE.saturating_mul(3);

#[tokio::test(start_paused = true)]
async fn permits_of_an_idle_subject_are_given_back() {
    for limit in [
        Limit::gcra(1_000, MINUTE),
        Limit::fixed_window(1_000, MINUTE),
    ] {
        let fleet = Fleet::new();
        let (process, _) = fleet.process();
        let subject = Subject::under(limit, Some(Prefetch::new()));
        let mut used = 0;
        while in_hand(&process, &subject, 1).is_none() {
            let _ = ask(&process, &subject, Action::acquire(1)).await.unwrap();
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
async fn unspent_permits_are_given_back_when_the_limiter_ends() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = windowed();
    warm_up(&process, &subject, 500).await;
    assert!(fleet.look(&subject).remaining() < 9_500);
    drop(process);
    settle().await;
    assert_eq!(fleet.look(&subject).remaining(), 9_500);
}

/// Subjects of which a process holds permits, and how many of them it has used.
async fn many_held<S: Store>(process: &Prefetching<S>) -> (Vec<Subject>, u64) {
    let one = windowed();
    let subjects: Vec<_> = (0..64).map(|number| one.numbered(number)).collect();
    for _ in 0..40 {
        for subject in &subjects {
            let _ = ask(process, subject, Action::acquire(1)).await.unwrap();
        }
        settle().await;
        advance(MILLISECOND).await;
    }
    (subjects, 40)
}

#[tokio::test(start_paused = true)]
async fn a_subject_whose_permits_cannot_be_given_back_holds_up_no_other() {
    for (is_dropped, panics) in [(false, false), (true, false), (false, true), (true, true)] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let (subjects, used) = many_held(&process).await;
        let kept = &subjects[7];
        way.keep(kept);
        way.panics.store(panics, Ordering::SeqCst);
        let process = (!is_dropped).then_some(process);
        tokio::time::sleep(SECOND).await;
        for (number, subject) in subjects.iter().enumerate() {
            let missing = 10_000 - used - fleet.look(subject).remaining();
            assert_eq!(missing > 0, number == 7, "{number}: {missing}");
        }
        drop(process);
    }
}

#[tokio::test(start_paused = true)]
async fn permits_of_many_subjects_are_given_back_a_few_subjects_at_once() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let (subjects, used) = many_held(&process).await;
    *way.there.lock().unwrap() = DEADLINE / 2;
    drop(process);
    tokio::time::sleep(5 * DEADLINE / 2).await;
    for subject in &subjects {
        assert_eq!(fleet.look(subject).remaining(), 10_000 - used);
    }
    assert_eq!(way.most_under_way(), 16);
}

/// The permits of a killed process count as used.
#[tokio::test(start_paused = true)]
async fn permits_that_are_not_given_back_come_back_with_time() {
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

/// Within the time it takes to see that nobody uses the old limit any more.
#[tokio::test(start_paused = true)]
async fn a_batch_of_a_limit_that_was_changed_is_given_back() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let old = windowed();
    warm_up(&process, &old, 500).await;
    let new = Subject::under(Limit::fixed_window(20_000, MINUTE), Some(Prefetch::new()));
    for _ in 0..350 {
        let decision = ask(&process, &new, Action::acquire(1)).await.unwrap();
        assert_eq!((decision.limit(), decision.is_allowed()), (20_000, true));
        settle().await;
        advance(MILLISECOND).await;
    }
    assert!(
        in_hand(&process, &new, 1).is_some(),
        "none of the new limit"
    );
    drop(process);
    settle().await;
    assert_eq!(fleet.look(&new).remaining(), 20_000 - 851);
}

/// However often it is asked for meanwhile.
#[tokio::test(start_paused = true)]
async fn no_more_is_held_than_a_share_that_was_lowered() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let limit = Limit::fixed_window(1_000, MINUTE);
    let prefetch = Prefetch::new();
    let old = Subject::under(limit, Some(prefetch.share(0.1)));
    warm_up(&process, &old, 500).await;
    let held = |used| 1_000 - used - fleet.look(&old).remaining();
    assert!(held(500) > 10);
    let new = Subject::under(limit, Some(prefetch.share(0.01)));
    let two_horizons = 200;
    warm_up(&process, &new, two_horizons).await;
    for used in 501 + two_horizons..=900 {
        warm_up(&process, &new, 1).await;
        assert!(held(used) <= 10, "{} after {used}", held(used));
    }
    assert!(
        in_hand(&process, &new, 1).is_some(),
        "none of the new share"
    );
}

/// What is given back counts as used if others have taken something since.
#[tokio::test(start_paused = true)]
async fn a_subject_that_has_several_limits_at_a_time_gets_all_that_they_hold() {
    for [often, seldom] in [
        [5_000, 6_000].map(|permits| Limit::gcra(permits, DAY)),
        [5_000, 6_000].map(|burst| Limit::token_bucket(burst, per_second(1))),
        [5_000, 6_000].map(|permits| Limit::fixed_window(permits, DAY)),
    ] {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let prefetch = Some(Prefetch::new());
        let [often, seldom] = [often, seldom].map(|limit| Subject::under(limit, prefetch));
        let name = often.algorithm.name();
        let (mut asked, mut allowed) = (0, 0);
        for number in 0..7_000 {
            let subject = match number % 16 {
                0 => &seldom,
                _ => &often,
            };
            asked += 1;
            let decision = ask(&process, subject, Action::acquire(1)).await.unwrap();
            allowed += u64::from(decision.is_allowed());
            settle().await;
            advance(MILLISECOND).await;
            if allowed == 4_000 {
                assert!(way.trips() < asked / 4, "{name}: {} trips", way.trips());
            }
        }
        assert!(allowed >= 5_000, "{name}: {allowed}");
    }
}

/// The answer is there when the process resumes, and is read a moment later.
#[tokio::test(start_paused = true)]
async fn a_batch_that_came_while_the_process_stood_still_is_given_back() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = windowed();
    *way.back.lock().unwrap() = STANDSTILL + 2 * MILLISECOND;
    let asked = ask_at_once(&process, &subject, 20).await;
    let taken = 10_000 - fleet.look(&subject).remaining();
    assert!(taken > 20, "none on its way");
    *way.back.lock().unwrap() = Duration::ZERO;
    advance(STANDSTILL).await;
    asked.join_all().await;
    settle().await;
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 20);
}

/// With several batches, each is given back after the one before it.
#[tokio::test(start_paused = true)]
async fn a_standstill_keeps_nothing_from_being_given_back() {
    for used in 500..540 {
        let fleet = Fleet::new();
        let (process, way) = fleet.process();
        let subject = windowed();
        warm_up(&process, &subject, used).await;
        *way.back.lock().unwrap() = STANDSTILL + 2 * MILLISECOND;
        drop(process);
        settle().await;
        advance(STANDSTILL).await;
        tokio::time::sleep(SECOND).await;
        assert_eq!(fleet.look(&subject).remaining(), 10_000 - used);
    }
}

/// A store may keep what a group has used in another place.
#[tokio::test(start_paused = true)]
async fn a_batch_of_a_policy_whose_group_was_changed_is_given_back() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let old = windowed();
    warm_up(&process, &old, 500).await;
    let mut new = old.clone();
    new.policy = new.policy.in_group("clients");
    let held = 9_500 - fleet.look(&old).remaining();
    assert!(held > 0);
    let look = ask(&process, &new, Action::look()).await.unwrap();
    assert_eq!(look.remaining(), 9_500 - held);
    assert!(in_hand(&process, &new, 1).is_none());
    tokio::time::sleep(350 * MILLISECOND).await;
    assert_eq!(fleet.look(&old).remaining(), 9_500);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_on_its_way_when_the_limit_was_changed_is_given_back() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let prefetch = Some(Prefetch::new());
    let old = Subject::under(Limit::fixed_window(10_000, MINUTE), prefetch);
    let asked = ask_for_a_batch(&process, &way, &old).await;
    let new = Subject::under(Limit::fixed_window(20_000, MINUTE), prefetch);
    let _ = ask(&process, &new, Action::acquire(1)).await.unwrap();
    assert!(asked.join_all().await.iter().all(Decision::is_allowed));
    tokio::time::sleep(350 * MILLISECOND).await;
    assert_eq!(fleet.look(&new).remaining(), 20_000 - 21);
    // The next batch is of the new limit.
    *way.back.lock().unwrap() = Duration::ZERO;
    warm_up(&process, &new, 100).await;
    assert!(in_hand(&process, &new, 1).is_some());
}

/// The old limit has been forgotten here by then, but not in the store.
#[tokio::test(start_paused = true)]
async fn a_batch_that_comes_after_batches_of_the_new_limit_is_given_back() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let prefetch = Some(Prefetch::new().max_age(10 * MILLISECOND));
    let limit = |permits| Limit::fixed_window(permits, DAY).aligned();
    let old = Subject::under(limit(10_000), prefetch);
    let asked = ask_for_a_batch(&process, &way, &old).await;
    let two_horizons = 10 * MILLISECOND;
    advance(two_horizons).await;
    *way.back.lock().unwrap() = Duration::ZERO;
    let new = Subject::under(limit(20_000), prefetch);
    warm_up(&process, &new, 10).await;
    asked.join_all().await;
    settle().await;
    assert_eq!(fleet.look(&old).remaining(), 10_000 - 30);
}

/// As when a request goes away while another policy delays it.
#[tokio::test(start_paused = true)]
async fn a_refund_leaves_permits_that_others_hold_as_they_are() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = hot();
    let mine = ask(&process, &subject, Action::acquire(100)).await.unwrap();
    let refund = Action::Refund {
        permits: 100,
        receipt: mine.receipt(),
    };
    let others = fleet.memory.decide(&[subject.check(Action::acquire(10))]);
    assert!(others.unwrap().all_allow());
    let _ = ask(&process, &subject, refund).await.unwrap();
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 110);

    let last = ask(&process, &subject, Action::acquire(100)).await.unwrap();
    let refund = Action::Refund {
        permits: 100,
        receipt: last.receipt(),
    };
    let _ = ask(&process, &subject, refund).await.unwrap();
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 110);
}

/// Otherwise others could take the permits a second time: later permits are not paid back any
/// sooner because earlier ones were given back.
#[tokio::test(start_paused = true)]
async fn permits_given_back_by_one_process_are_not_handed_out_twice() {
    let fleet = Fleet::new();
    let (early, _) = fleet.process();
    let (late, _) = fleet.process();
    let prefetch = Prefetch::new().share(0.4).max_age(2 * SECOND);
    let subject = Subject::under(Limit::gcra(1_000, SECOND), Some(prefetch));
    for process in [&early, &late] {
        for _ in 0..200 {
            let _ = ask(process, &subject, Action::acquire(1)).await.unwrap();
            settle().await;
        }
    }
    let owed = 1_000 - fleet.look(&subject).remaining();
    // One falls silent until its permits are due to be given back.
    for _ in 0..7 {
        tokio::time::sleep(50 * MILLISECOND).await;
        assert!(in_hand(&late, &subject, 1).is_some());
    }
    // A moment before everything is paid back.
    let rest = Duration::from_millis(owed - 20) - 350 * MILLISECOND;
    tokio::time::sleep(rest).await;
    let drained = fleet.look(&subject).remaining();
    let take = subject.check(Action::acquire(drained));
    assert!(fleet.memory.decide(&[take]).unwrap().all_allow());
    let mut late_ones = 0;
    while in_hand(&late, &subject, 1).is_some() {
        late_ones += 1;
    }
    assert!(late_ones > 0);
    assert!(drained + late_ones <= 1_000, "{drained} and {late_ones}");
}
