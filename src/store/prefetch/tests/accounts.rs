//! Which questions accounts answer, and which subjects keep theirs.

use std::time::Duration;

use tokio::time::advance;

use super::fleet::{DEADLINE, Fleet, Subject, ask, ask_for_a_batch, in_hand, settle};
use super::{MILLISECOND, hot, warm_up, windowed};
use crate::algorithm::Action;
use crate::decision::Receipt;
use crate::limit::Limit;
use crate::store::prefetch::table::Table;
use crate::store::prefetch::{Prefetch, Prefetching};
use crate::store::{Answer, Store};
use crate::time::{HOUR, Micros};

#[tokio::test(start_paused = true)]
async fn a_look_goes_to_the_store_and_adds_what_is_held_here() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = windowed();
    warm_up(&process, &subject, 500).await;
    assert!(fleet.look(&subject).remaining() < 9_500);
    way.asked();
    for _ in 0..100 {
        let look = ask(&process, &subject, Action::look()).await.unwrap();
        assert_eq!(look.remaining(), 9_500);
        assert!(!look.is_prefetched());
    }
    assert_eq!(way.asked(), [Action::look(); 100]);
}

/// They would count twice, once here and once in the store. What others have taken since comes back
/// later.
#[tokio::test(start_paused = true)]
async fn permits_that_have_come_back_are_not_among_those_that_a_look_tells_of() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = hot();
    warm_up(&process, &subject, 510).await;
    let others = fleet
        .memory
        .decide(&[subject.check(Action::acquire(5_000))]);
    assert!(others.unwrap().all_allow());
    let look = async || ask(&process, &subject, Action::look()).await.unwrap();
    let in_store = || fleet.look(&subject).remaining();
    assert!(look().await.remaining() > in_store(), "none held");
    advance(60 * MILLISECOND).await;
    assert_eq!(look().await.remaining(), in_store());
}

#[tokio::test(start_paused = true)]
async fn a_charge_tells_what_is_left_with_what_is_held_here() {
    let fleet = Fleet::new();
    let (process, _) = fleet.process();
    let subject = windowed();
    warm_up(&process, &subject, 500).await;
    assert!(fleet.look(&subject).remaining() < 9_500);
    for action in [Action::Charge(100), Action::look()] {
        let told = ask(&process, &subject, action).await.unwrap();
        assert_eq!(told.remaining(), 9_400, "{action:?}");
    }
}

/// With prefetch, others may hold permits that were taken since, which a refund would pay back too
/// early.
#[tokio::test(start_paused = true)]
async fn a_refund_is_a_cancel_with_prefetch_and_stays_one_without() {
    let (permits, receipt) = (1, Receipt::default());
    let cancel = Action::Cancel { permits, receipt };
    let refund = Action::Refund { permits, receipt };
    let withdraw = Action::Withdraw { permits, receipt };
    let (process, way) = Fleet::new().process();
    let [prefetched, without] = [Some(Prefetch::new()), None]
        .map(|prefetch| Subject::under(Limit::gcra(10_000, HOUR), prefetch));
    for action in [refund, withdraw] {
        for (subject, handed_on) in [(&prefetched, cancel), (&without, action)] {
            let _ = ask(&process, subject, action).await.unwrap();
            assert_eq!(way.asked(), [handed_on]);
        }
        let together = [&prefetched, &without].map(|subject| subject.check(action));
        let Answer::Pending(answer) = process.ask(&together) else {
            panic!("without a trip");
        };
        answer.await.unwrap();
        assert_eq!(way.asked(), [cancel, action]);
    }
}

/// Asks for a permit of each of many other subjects.
async fn flood<S: Store>(process: &Prefetching<S>, subject: &Subject) {
    for number in 1..20_000 {
        let other = subject.numbered(number);
        let _ = ask(process, &other, Action::acquire(1)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_subjects_drives_out_none_whose_permits_are_held() {
    let (process, way) = Fleet::new().process();
    let subject = hot();
    warm_up(&process, &subject, 200).await;
    flood(&process, &subject).await;
    way.asked();
    assert!(in_hand(&process, &subject, 1).is_some());
    assert_eq!(way.asked(), []);
}

/// A subject with a batch in flight and nothing in hand.
#[tokio::test(start_paused = true)]
async fn a_flood_of_subjects_drives_out_none_whose_batch_is_in_flight() {
    let (process, way) = Fleet::new().process();
    let subject = windowed();
    let asked = ask_for_a_batch(&process, &way, &subject).await;
    *way.back.lock().unwrap() = Duration::ZERO;
    flood(&process, &subject).await;
    advance(DEADLINE / 2).await;
    asked.join_all().await;
    settle().await;
    assert!(in_hand(&process, &subject, 1).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_new_subject_takes_the_place_of_the_one_asked_for_longest_ago() {
    let (table, subject) = (Table::new(), hot());
    let (check, prefetch) = (subject.check(Action::acquire(1)), Prefetch::new());
    let set = table.place(1);
    let mut of_set = (1..).filter(|key| table.place(*key) == set);
    let [first, second, third, fourth, newest] = [(); 5].map(|()| of_set.next().unwrap());
    let asked_in_turn = [first, second, third, fourth, second, first, newest];
    for (now, key) in (1..).zip(asked_in_turn) {
        let mut entry = table.entry(key);
        let account = entry.account_or_open(&check, prefetch).expect("a place");
        let _ = account.acquire(&check, prefetch, Micros::new(now), None);
    }
    let kept =
        [first, second, third, fourth, newest].map(|key| table.entry(key).account().is_some());
    assert_eq!(kept, [true, true, false, true, true]);
}
