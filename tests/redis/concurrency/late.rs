//! A store that is late to take permits, and gives them back at once.

use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::store::Action;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{FailureMode, MemoryStore};

pub(crate) const LATE: Duration = Duration::from_millis(100);

/// Counts in memory, even if nobody waits for the answer any more. For one check at a time.
pub(crate) struct Late(MemoryStore);

impl Late {
    pub(crate) fn new() -> Self {
        Self(MemoryStore::new())
    }
}

impl Store for Late {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let (store, check) = (self.0.clone(), &checks[0]);
        let (policy, subject) = (check.policy.clone(), check.subject);
        let (algorithm, action) = (check.algorithm, check.action);
        let asked = tokio::spawn(async move {
            if matches!(action, Action::Acquire(_)) {
                sleep(LATE).await;
            }
            let check = Check::new(&policy, subject, algorithm, action)
                .with_failure_mode(FailureMode::Deny);
            let Answer::Ready(answer) = store.ask(&[check]) else {
                panic!("a memory store answers at once");
            };
            answer
        });
        Answer::Pending(Box::pin(async { asked.await.unwrap() }))
    }
}
