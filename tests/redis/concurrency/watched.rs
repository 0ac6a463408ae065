//! A store that records what it is asked, and fails when the test says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tower_throttle::store::Action;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{ManualClock, MemoryStore, StoreError, StoreErrorKind};

/// Counts in memory and answers after a round trip. Clones are the same store.
#[derive(Clone)]
pub(crate) struct Watched(Arc<Watch>);

struct Watch {
    store: MemoryStore,
    clock: ManualClock,
    asked: Mutex<Vec<Vec<Action>>>,
    /// What it answers instead, without doing anything.
    failure: Mutex<Option<StoreErrorKind>>,
    panics: AtomicBool,
    /// How long an answer takes; questions take no time.
    way_back: Mutex<Duration>,
}

impl Watched {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self(Arc::new(Watch {
            store,
            clock,
            asked: Mutex::default(),
            failure: Mutex::default(),
            panics: AtomicBool::default(),
            way_back: Mutex::default(),
        }))
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.0.clock
    }

    pub(crate) fn fail(&self, kind: StoreErrorKind) {
        *self.0.failure.lock().unwrap() = Some(kind);
    }

    pub(crate) fn work(&self) {
        *self.0.failure.lock().unwrap() = None;
    }

    pub(crate) fn answer_after(&self, time: Duration) {
        *self.0.way_back.lock().unwrap() = time;
    }

    /// Panics at the next question.
    pub(crate) fn panic(&self) {
        self.0.panics.store(true, Ordering::SeqCst);
    }

    /// How many leases each question was to renew, since the last call.
    pub(crate) fn renewed(&self) -> Vec<usize> {
        self.asked_to(|action| matches!(action, Action::Renew(_)))
    }

    /// How many leases each question was to release, since the last call.
    pub(crate) fn released(&self) -> Vec<usize> {
        self.asked_to(|action| matches!(action, Action::Release(_)))
    }

    fn asked_to(&self, is_it: impl Fn(&Action) -> bool) -> Vec<usize> {
        let mut asked = self.0.asked.lock().unwrap();
        let its = asked.extract_if(.., |question| question.iter().any(&is_it));
        its.map(|question| question.len()).collect()
    }
}

impl Store for Watched {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        if self.0.panics.swap(false, Ordering::SeqCst) {
            panic!("as the test wants it to");
        }
        let actions = checks.iter().map(|check| check.action);
        self.0.asked.lock().unwrap().push(actions.collect());
        let answer = match *self.0.failure.lock().unwrap() {
            Some(kind) => Err(StoreError::new(kind)),
            None => match self.0.store.ask(checks) {
                Answer::Ready(answer) => answer,
                Answer::Pending(_) => unreachable!("a memory store answers at once"),
            },
        };
        let way_back = *self.0.way_back.lock().unwrap();
        Answer::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            if !way_back.is_zero() {
                sleep(way_back).await;
            }
            answer
        }))
    }
}
