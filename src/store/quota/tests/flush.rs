//! What a process gives back before it ends.

use std::time::Duration;

use tokio::time::Instant;

use super::fleet::{DEADLINE, Fleet, ask_for_a_batch, in_hand};
use super::{warm_up, windowed};

#[tokio::test(start_paused = true)]
async fn flush_gives_back_all_that_is_held_and_a_later_question_takes_more() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subjects = [1, 2].map(|number| windowed().numbered(number));
    for subject in &subjects {
        warm_up(&process, subject, 100).await;
        assert!(fleet.look(subject).remaining() < 9_900);
    }
    *way.there.lock().unwrap() = DEADLINE / 2;
    process.give_back_all();
    process.0.under_way.is_over().await;
    for subject in &subjects {
        assert_eq!(fleet.look(subject).remaining(), 9_900);
        assert!(in_hand(&process, subject, 1).is_none());
    }
    *way.there.lock().unwrap() = Duration::ZERO;
    warm_up(&process, &subjects[0], 100).await;
    assert!(in_hand(&process, &subjects[0], 1).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_batch_in_flight_is_waited_for_and_given_back() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = windowed();
    let began = Instant::now();
    let asked = ask_for_a_batch(&process, &way, &subject).await;
    process.give_back_all();
    process.0.under_way.is_over().await;
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 20);
    assert_eq!(began.elapsed(), DEADLINE);
    asked.join_all().await;
}
