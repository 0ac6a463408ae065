//! Questions continue after their callers have left: they keep their places, and their answers count.

use std::pin::pin;
use std::task::Poll;

use futures_util::poll;
use tower_throttle::{CheckError, DAY, Decision, Limiter, Policy, StoreErrorKind};

use super::left::{MOST_IN_FLIGHT, limiter, looked_at, pause, unpause};
use support::limits;
use support::redis::Server;
use support::until::until;

fn failure(asked: Poll<Result<Decision, CheckError>>) -> Option<StoreErrorKind> {
    match asked {
        Poll::Ready(decided) => decided.unwrap().store_failure(),
        Poll::Pending => None,
    }
}

/// Otherwise a client that sends requests and cancels them could load the server without bound.
#[tokio::test]
async fn a_question_counts_as_in_flight_until_it_is_answered() {
    for policy in ["rate", "places"] {
        let server = Server::start();
        let limiter = limiter(&server).await;
        pause(&server);
        for number in 0..MOST_IN_FLIGHT {
            let is_ready = looked_at(1, limiter.check(policy, number as u64)).await;
            assert!(!is_ready, "{policy}: question {number} is not sent");
        }
        let one_more = pin!(limiter.check(policy, 0));
        assert_eq!(
            failure(poll!(one_more)),
            Some(StoreErrorKind::Overloaded),
            "{policy}"
        );
        unpause(&server);
        until("they are answered", async || {
            failure(Poll::Ready(limiter.check(policy, 0).await)).is_none()
        })
        .await;
    }
}

/// Otherwise the server would be asked each time.
#[tokio::test]
async fn clients_that_leave_early_are_denied_from_memory() {
    let server = Server::start();
    for (name, limit) in limits::in_time(1, DAY) {
        let store = server.store().await;
        let limiter = Limiter::new(store, [Policy::new(name, limit)]).unwrap();
        assert!(limiter.check(name, 0).await.unwrap().is_allowed(), "{name}");
        until("the answer is there at once", async || {
            looked_at(1, limiter.check(name, 0)).await
        })
        .await;
    }
}
