//! What a process gives back before it ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join;
use tokio::time::{Instant, sleep};

use super::fleet::{DEADLINE, Fleet, ask_for_a_batch, in_hand};
use super::{warm_up, windowed};
use crate::store::Store;
use crate::store::prefetch::Prefetching;

/// As the limiter does it.
async fn flushed<S: Store>(process: &Prefetching<S>) -> bool {
    let flush = process.0.in_flight.flush();
    process.give_back_all();
    flush.done().await
}

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
    assert!(flushed(&process).await);
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
    assert!(flushed(&process).await);
    assert_eq!(fleet.look(&subject).remaining(), 10_000 - 20);
    assert_eq!(began.elapsed(), DEADLINE);
    asked.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_gone_flush_tries_again_to_give_back() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = windowed();
    warm_up(&process, &subject, 100).await;
    assert!(fleet.look(&subject).remaining() < 9_900);
    way.fails.store(true, Ordering::SeqCst);
    let comes_back = async {
        sleep(10 * DEADLINE).await;
        way.fails.store(false, Ordering::SeqCst);
    };
    let (is_flushed, ()) = join(flushed(&process), comes_back).await;
    assert!(is_flushed);
    assert_eq!(fleet.look(&subject).remaining(), 9_900);
}

/// They may have been given back, which must not happen twice.
#[tokio::test(start_paused = true)]
async fn flush_tells_that_it_does_not_know_what_became_of_permits() {
    let fleet = Fleet::new();
    let (process, way) = fleet.process();
    let subject = windowed();
    warm_up(&process, &subject, 100).await;
    way.is_cut.store(true, Ordering::SeqCst);
    let began = Instant::now();
    assert!(!flushed(&process).await);
    assert_eq!(began.elapsed(), DEADLINE);
}
