//! What a store is asked, without a limiter in front of it.

use std::fmt::Debug;

use tower_throttle::algorithm::{Action, Algorithm};
use tower_throttle::{
    Answer, Check, Decisions, FailureMode, Key, PendingAnswer, PolicyId, Store, StoreError, Subject,
};

/// So many plain takes of one server go by themselves beside each other. Whoever comes then waits for them, and shares a
/// trip.
pub const GO_ALONE: usize = 8;

/// Enforced, and denied where the store fails.
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
    heard(store.ask(checks)).await
}

/// Whether it took a trip or not.
pub async fn heard(answer: Answer) -> Result<Decisions, StoreError> {
    match answer {
        Answer::Ready(answer) => answer,
        Answer::Pending(answer) => answer.await,
    }
}

/// Of a store that takes a trip for it, which begins at once.
pub fn pending_answer_of(store: &(impl Store + ?Sized), checks: &[Check<'_>]) -> PendingAnswer {
    match store.ask(checks) {
        Answer::Pending(answer) => answer,
        Answer::Ready(answer) => panic!("Redis takes a trip: {answer:?}"),
    }
}
