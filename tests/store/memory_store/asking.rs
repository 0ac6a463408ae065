//! Asks a store directly, several checks at once, as a service over the limiter does.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Answer, Check, Decisions, PolicyId, Store};
use tower_throttle::{
    FailureMode, Key, Limit, Limiter, Policy, StoreError, StoreErrorKind, Subject,
};

/// What a limiter asks its store, kept to be asked again.
#[derive(Clone)]
pub(crate) struct Asked {
    policy: PolicyId,
    subject: Subject,
    algorithm: Algorithm,
    action: Action,
}

impl Asked {
    pub(crate) fn new(policy: &str, limit: Limit, key: impl Into<Key>, cost: u64) -> Self {
        let listener = Listener::default();
        let limiter = Limiter::new(listener.clone(), [Policy::new(policy, limit)]).unwrap();
        let answer = limiter.check_cost(policy, key, cost).now_or_never();
        assert!(answer.is_some(), "the listener answers at once");
        let heard = listener.0.lock().unwrap().take();
        heard.expect("a check asks the store")
    }

    pub(crate) fn check(&self) -> Check<'_> {
        Check::new(&self.policy, self.subject, self.algorithm, self.action)
            .with_failure_mode(FailureMode::Deny)
    }
}

pub(crate) fn ask(store: &impl Store, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
    match store.ask(checks) {
        Answer::Ready(answer) => answer,
        Answer::Pending(_) => panic!("a memory store answers at once"),
    }
}

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Option<Asked>>>);

impl Store for Listener {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        *self.0.lock().unwrap() = checks.first().map(|check| Asked {
            policy: check.policy.clone(),
            subject: check.subject,
            algorithm: check.algorithm,
            action: check.action,
        });
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Busy)))
    }
}
