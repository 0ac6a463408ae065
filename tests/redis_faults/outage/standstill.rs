//! A process that stands still for longer than a decision may take, in front of a server that
//! answers. This happens when a container has used up its share of the processors, or a handler
//! blocks the threads.

use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use tower_throttle::{FailureMode, Limit, Limiter, MINUTE, Policy, StoreErrorKind};

use crate::outage::back;
use crate::outage::notes::Notes;
use support::redis::Server;

/// Three times what a decision may take.
const STANDSTILL: Duration = Duration::from_millis(150);

async fn limiter(server: &Server, notes: &Notes) -> Limiter {
    let policy = Policy::new("api", Limit::gcra(1_000_000, MINUTE));
    let limiter = Limiter::builder(
        server.store().await,
        [policy.on_store_failure(FailureMode::Deny)],
    )
    .observe(notes.clone())
    .build()
    .unwrap();
    back(&limiter, "api").await;
    limiter
}

/// Asks about this many subjects, and stands still while the server answers. Returns why the store
/// has decided about none of them.
async fn asked_before_a_standstill(
    server: &Server,
    limiter: &Limiter,
    subjects: u32,
) -> Vec<Option<StoreErrorKind>> {
    // It answers only then.
    server.signal("STOP");
    let mut asked = join_all((0..subjects).map(|subject| limiter.check("api", subject)));
    assert!(poll!(&mut asked).is_pending());
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    server.signal("CONT");
    thread::sleep(STANDSTILL);
    let decisions = asked.await.into_iter();
    decisions.map(|one| one.unwrap().store_failure()).collect()
}

#[tokio::test]
async fn an_answer_that_came_while_the_process_stood_still_is_read() {
    let server = Server::start();
    let limiter = limiter(&server, &Notes::default()).await;
    let mut read = 0;
    for _ in 0..5 {
        let failures = asked_before_a_standstill(&server, &limiter, 1).await;
        read += u32::from(failures == [None]);
    }
    // On a busy machine the process may stand still again in the moment that it has for reading.
    assert!(read > 0);
}

/// Most of them are sent only when the first are answered.
#[tokio::test]
async fn a_standstill_does_not_open_the_breaker_of_a_good_server() {
    let server = Server::start();
    let notes = Notes::default();
    let limiter = limiter(&server, &notes).await;
    for _ in 0..5 {
        asked_before_a_standstill(&server, &limiter, 64).await;
        assert_eq!(notes.states(), []);
    }
}
