//! Limiters for the tests of the layer, over a store that answers at once, after a round trip, or
//! not at all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tower_throttle::store::{Action, Algorithm, Ask, State, committed, decide};
use tower_throttle::store::{Answer, Check, Decisions, Store};
use tower_throttle::{Clock, Limit, Limiter, ManualClock, Policy, StoreError, StoreErrorKind};

/// How a store answers.
#[derive(Clone, Copy, Debug)]
pub enum Trip {
    /// At once.
    None,
    /// When the answer is polled a second time.
    Short,
    /// Fails at once.
    Fails,
    /// Fails when the answer is polled a second time.
    FailsLate,
}

/// The ways of a store that works: what must hold, holds for both.
pub const TRIPS: [Trip; 2] = [Trip::None, Trip::Short];

/// Counts with the algorithms on a stopped clock. Clones share the counts.
#[derive(Clone)]
pub struct TestStore {
    trip: Trip,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    states: Mutex<HashMap<u128, State>>,
    clock: ManualClock,
    decided: AtomicUsize,
}

impl TestStore {
    pub fn new(trip: Trip) -> Self {
        Self {
            trip,
            counts: Arc::default(),
        }
    }

    /// A limiter over this store with one policy, `api`, for everybody.
    pub fn limiter(&self, limit: Limit) -> Limiter {
        Limiter::new(self.clone(), [Policy::new("api", limit)]).expect("a valid policy")
    }

    /// How many questions have been decided.
    pub fn decided(&self) -> usize {
        self.counts.decided.load(Ordering::SeqCst)
    }
}

impl Store for TestStore {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let questions: Vec<_> = checks.iter().map(Question::of).collect();
        let counts = Arc::clone(&self.counts);
        let failure = || StoreError::new(StoreErrorKind::Unreachable);
        match self.trip {
            Trip::None => Answer::Ready(Ok(counts.decide(&questions))),
            Trip::Fails => Answer::Ready(Err(failure())),
            Trip::Short => Answer::Pending(Box::pin(async move {
                tokio::task::yield_now().await;
                Ok(counts.decide(&questions))
            })),
            Trip::FailsLate => Answer::Pending(Box::pin(async move {
                tokio::task::yield_now().await;
                Err(failure())
            })),
        }
    }
}

struct Question {
    key: u128,
    algorithm: Algorithm,
    action: Action,
}

impl Question {
    fn of(check: &Check<'_>) -> Self {
        Self {
            key: check.fingerprint(),
            algorithm: check.algorithm,
            action: check.action,
        }
    }
}

impl Counts {
    fn decide(&self, questions: &[Question]) -> Decisions {
        let mut states = self.states.lock().expect("no test panics in here");
        let now = self.clock.now();
        let mut readings = Vec::new();
        for asked in questions {
            let untouched = || asked.algorithm.untouched();
            let state = states.entry(asked.key).or_insert_with(untouched);
            readings.push(asked.algorithm.read(state, now, &asked.action));
        }
        let asked = questions
            .iter()
            .map(|asked| Ask::enforced(&asked.algorithm, &asked.action));
        let committed = committed(asked.clone(), &readings);
        for (position, is_committed) in committed.enumerate() {
            if !is_committed && readings[position].fits {
                continue;
            }
            let question = &questions[position];
            let state = states.get_mut(&question.key).expect("it was read");
            readings[position] =
                question
                    .algorithm
                    .commit(state, now, &question.action, readings[position]);
        }
        self.decided.fetch_add(1, Ordering::SeqCst);
        decide(asked, &readings)
    }
}
