//! Deadlines that pass while this process stands still.

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::{Instant, advance};

use super::*;

const DEADLINE: Duration = Duration::from_millis(50);
const STANDSTILL: Duration = Duration::from_millis(150);
const LATE: Outcome = Outcome::FailedClosed(StoreErrorKind::TimedOut);

/// Asks this many questions and stands still before any answer is read. Returns their outcomes.
async fn asked_before_a_standstill(failover: &Failover, questions: usize) -> Vec<Outcome> {
    let one = one(FailureMode::Deny);
    let mut asked = join_all((0..questions).map(|_| ask(failover, &one)));
    assert!(futures_util::poll!(&mut asked).is_pending());
    advance(STANDSTILL).await;
    asked.await.iter().flat_map(outcomes).collect()
}

#[tokio::test(start_paused = true)]
async fn all_that_one_standstill_lets_pass_their_deadlines_count_as_one_failure() {
    let (_, failover) = over(Way::Hangs);
    for _ in 0..4 {
        assert_eq!(asked_before_a_standstill(&failover, 64).await, [LATE; 64]);
        assert_eq!(failover.breaker().state(), BreakerState::Closed);
    }
}

/// As a process that is badly overloaded.
#[tokio::test(start_paused = true)]
async fn a_late_process_finds_a_hanging_server_after_five_deadlines() {
    for questions in [1, 64] {
        let (store, failover) = over(Way::Hangs);
        let mut deadlines = 0;
        while failover.breaker().state() == BreakerState::Closed {
            asked_before_a_standstill(&failover, questions).await;
            deadlines += 1;
        }
        assert_eq!(deadlines, 5);
        assert_eq!(store.questions(), 5 * questions);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_between_ends_the_row_of_standstills() {
    let (store, failover) = over(Way::Hangs);
    for _ in 0..10 {
        store.now(Way::Hangs);
        asked_before_a_standstill(&failover, 64).await;
        store.now(Way::Works);
        ask(&failover, &one(FailureMode::Deny)).await;
        assert_eq!(failover.breaker().state(), BreakerState::Closed);
    }
}

/// Otherwise a process that is always late would keep probing a server that hangs.
#[tokio::test(start_paused = true)]
async fn a_probe_whose_deadline_passed_in_a_standstill_has_failed() {
    let (store, failover) = over(Way::Hangs);
    open(&failover).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(asked_before_a_standstill(&failover, 1).await, [LATE]);
    let questions = store.questions();
    let left_alone = ask(&failover, &one(FailureMode::Deny)).await;
    let why = left_alone[0].store_failure();
    assert_eq!(why, Some(StoreErrorKind::BreakerOpen));
    assert_eq!(store.questions(), questions);
}

/// An answer that arrived by then is read by another task, which resumes together with this one.
#[tokio::test(start_paused = true)]
async fn an_answer_that_arrived_during_a_standstill_is_waited_for_a_moment() {
    let (read, reads) = oneshot::channel();
    let store = Arc::new(Read(Mutex::new(Some(reads))));
    let failover = Failover::new(store, DEADLINE, Arc::new(()), Observers::default());
    let one = one(FailureMode::Deny);
    let mut asked = Box::pin(ask(&failover, &one));
    assert!(futures_util::poll!(&mut asked).is_pending());
    advance(STANDSTILL).await;
    assert!(futures_util::poll!(&mut asked).is_pending());
    read.send(()).unwrap();
    assert_eq!(outcomes(&asked.await), [Outcome::Allowed]);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_past_a_deadline_but_a_moment_after_standstills() {
    let (_, failover) = over(Way::Hangs);
    let started = Instant::now();
    asked_before_a_standstill(&failover, 1).await;
    assert!(started.elapsed() <= STANDSTILL + Duration::from_millis(10));
    let started = Instant::now();
    ask(&failover, &one(FailureMode::Deny)).await;
    assert!(started.elapsed() <= DEADLINE + Duration::from_millis(2));
}

/// A store whose answer has arrived but must still be read.
struct Read(Mutex<Option<oneshot::Receiver<()>>>);

impl Store for Read {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        let read = self.0.lock().unwrap().take().unwrap();
        Answer::Pending(Box::pin(async {
            let _ = read.await;
            let allowed = Decision::unasked(Outcome::Allowed, (1, Micros::new(1)));
            Ok([allowed].into_iter().collect())
        }))
    }
}
