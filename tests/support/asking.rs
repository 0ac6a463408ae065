//! Asks a store without a limiter in front of it.

use std::fmt::Debug;

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Answer, Check, Decisions, PendingAnswer, PolicyId, Store};
use tower_throttle::{FailureMode, Key, StoreError, Subject};

/// This many plain takes of one server go by themselves side by side. Those that come then wait for
/// them, and share a trip.
pub const GO_ALONE: usize = 8;

/// An enforced check that is denied when the store fails.
pub fn check_of<'a>(
    policy: &'a PolicyId,
    key: impl Into<Key>,
    limit: impl TryInto<Algorithm, Error: Debug>,
    action: Action,
) -> Check<'a> {
    Check::new(
        policy,
        Subject::from(&key.into()),
        limit.try_into().unwrap(),
        action,
    )
    .with_failure_mode(FailureMode::Deny)
}

pub async fn answer_of(
    store: &(impl Store + ?Sized),
    checks: &[Check<'_>],
) -> Result<Decisions, StoreError> {
    answered(store.ask(checks)).await
}

/// The answer, with or without a round trip.
pub async fn answered(answer: Answer) -> Result<Decisions, StoreError> {
    match answer {
        Answer::Ready(answer) => answer,
        Answer::Pending(answer) => answer.await,
    }
}

/// The answer of a store that takes a round trip, which begins at once.
pub fn pending_answer_of(store: &(impl Store + ?Sized), checks: &[Check<'_>]) -> PendingAnswer {
    match store.ask(checks) {
        Answer::Pending(answer) => answer,
        Answer::Ready(answer) => panic!("Redis takes a trip: {answer:?}"),
    }
}
