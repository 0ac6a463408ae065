//! A fleet in one process: a store that takes round trips, on the runtime's virtual time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::algorithm::{Action, Algorithm};
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::{self, Key};
use crate::limit::Limit;
use crate::store::check::OwnedCheck;
use crate::store::memory::MemoryStore;
use crate::store::prefetch::{Prefetch, Prefetching};
use crate::store::{Answer, Check, FailureMode, PolicyId, Store};
use crate::task::InFlightWork;
use crate::time::{Clock, Micros};

pub(super) const DEADLINE: Duration = Duration::from_millis(50);

/// The runtime's time, which advances only while everybody sleeps.
#[derive(Clone, Copy)]
pub(super) struct VirtualTime(Instant);

impl Clock for VirtualTime {
    fn now(&self) -> Micros {
        // Not the epoch: zero stands for an unknown instant.
        Micros::from(self.0.elapsed()).saturating_add(Micros::new(1_700_000_000_000_000))
    }
}

/// The store of the fleet.
#[derive(Clone)]
pub(super) struct Fleet {
    pub(super) clock: VirtualTime,
    pub(super) memory: MemoryStore,
}

impl Fleet {
    pub(super) fn new() -> Self {
        let clock = VirtualTime(Instant::now());
        Self {
            clock,
            memory: MemoryStore::builder().clock(clock).build(),
        }
    }

    /// A process of the fleet, and its connection to the store.
    pub(super) fn process(&self) -> (Prefetching<Arc<Way>>, Arc<Way>) {
        let way = Arc::new(Way {
            fleet: self.clone(),
            there: Mutex::new(Duration::ZERO),
            back: Mutex::new(Duration::ZERO),
            is_cut: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            keeps: Mutex::default(),
            panics: AtomicBool::new(false),
            trips: AtomicUsize::new(0),
            in_flight_work: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
            asked: Mutex::default(),
        });
        let (inner, in_flight_work) = (Arc::clone(&way), InFlightWork::default());
        let process = Prefetching::with_clock(inner, DEADLINE, in_flight_work, self.clock);
        (process, way)
    }

    /// What the store says, without a round trip.
    pub(super) fn look(&self, subject: &Subject) -> Decision {
        let check = subject.check(Action::look());
        self.memory.decide(&[check]).unwrap()[0]
    }
}

/// A process's connection to the store.
pub(super) struct Way {
    fleet: Fleet,
    pub(super) there: Mutex<Duration>,
    pub(super) back: Mutex<Duration>,
    /// No question arrives, and none is answered.
    pub(super) is_cut: AtomicBool,
    pub(super) fails: AtomicBool,
    /// Nothing of this subject can be given back.
    keeps: Mutex<Option<key::Subject>>,
    /// It then panics rather than fails.
    pub(super) panics: AtomicBool,
    trips: AtomicUsize,
    in_flight_work: AtomicUsize,
    most_under_way: AtomicUsize,
    asked: Mutex<Vec<Action>>,
}

impl Way {
    pub(super) fn trips(&self) -> usize {
        self.trips.load(Ordering::SeqCst)
    }

    /// The most questions in flight at once.
    pub(super) fn most_under_way(&self) -> usize {
        self.most_under_way.load(Ordering::SeqCst)
    }

    pub(super) fn keep(&self, subject: &Subject) {
        *self.keeps.lock().unwrap() = Some(subject.check(Action::look()).subject);
    }

    fn keeps(&self, check: &Check<'_>) -> bool {
        let is_kept = *self.keeps.lock().unwrap() == Some(check.subject);
        is_kept && matches!(check.action, Action::Cancel { .. })
    }

    /// The actions that have arrived since the last call.
    pub(super) fn asked(&self) -> Vec<Action> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Store for Arc<Way> {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let is_kept = checks.iter().any(|check| self.keeps(check));
        let panics = is_kept && self.panics.load(Ordering::SeqCst);
        assert!(!panics, "as the test wants it to");
        let way = Arc::clone(self);
        let (there, back) = (*way.there.lock().unwrap(), *way.back.lock().unwrap());
        let checks: Vec<OwnedCheck> = checks.iter().map(OwnedCheck::of).collect();
        Answer::Pending(Box::pin(async move {
            if way.fails.load(Ordering::SeqCst) {
                return Err(StoreError::new(StoreErrorKind::Unreachable));
            }
            let _under_way = Asking::begin(&way);
            if !there.is_zero() {
                sleep(there).await;
            }
            if way.is_cut.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            way.trips.fetch_add(1, Ordering::SeqCst);
            let actions = checks.iter().map(|check| check.action);
            way.asked.lock().unwrap().extend(actions);
            let checks: Vec<Check<'_>> = checks.iter().map(OwnedCheck::check).collect();
            if is_kept {
                return Err(StoreError::new(StoreErrorKind::Interrupted));
            }
            let answer = way.fleet.memory.decide(&checks);
            if !back.is_zero() {
                sleep(back).await;
            }
            answer
        }))
    }
}

/// A question in flight.
struct Asking<'a>(&'a Way);

impl<'a> Asking<'a> {
    fn begin(way: &'a Way) -> Self {
        let now = way.in_flight_work.fetch_add(1, Ordering::SeqCst) + 1;
        way.most_under_way.fetch_max(now, Ordering::SeqCst);
        Self(way)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.in_flight_work.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A subject under a policy.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) policy: PolicyId,
    pub(super) algorithm: Algorithm,
    key: u64,
}

impl Subject {
    pub(super) fn under(limit: Limit, prefetch: Option<Prefetch>) -> Self {
        Self {
            policy: PolicyId::new("api").with_prefetch(prefetch),
            algorithm: Algorithm::try_from(&limit).unwrap(),
            key: 0,
        }
    }

    pub(super) fn numbered(&self, key: u64) -> Self {
        Self {
            key,
            ..self.clone()
        }
    }

    pub(super) fn check(&self, action: Action) -> Check<'_> {
        Check {
            policy: &self.policy,
            subject: Key::from(self.key).subject(None),
            algorithm: self.algorithm,
            action,
            is_shadow: false,
            on_store_failure: FailureMode::Deny,
        }
    }
}

/// The answer to a question of one check, ready or pending.
pub(super) async fn ask<S: Store>(
    process: &Prefetching<S>,
    subject: &Subject,
    action: Action,
) -> Result<Decision, StoreError> {
    let answer = process.ask(&[subject.check(action)]);
    let decisions = match answer {
        Answer::Ready(answer) => answer,
        Answer::Pending(answer) => answer.await,
    };
    decisions.map(|decisions| decisions[0])
}

/// Asks for one permit this many times, without waiting for answers.
pub(super) async fn ask_at_once<S: Store>(
    process: &Prefetching<S>,
    subject: &Subject,
    times: u64,
) -> JoinSet<Decision> {
    let mut asked = JoinSet::new();
    for _ in 0..times {
        let answer = process.ask(&[subject.check(Action::acquire(1))]);
        asked.spawn(async move {
            match answer {
                Answer::Ready(answer) => answer.unwrap()[0],
                Answer::Pending(answer) => answer.await.unwrap()[0],
            }
        });
    }
    settle().await;
    asked
}

/// The same 20 times, for a subject of which that takes a batch, which is then in flight.
pub(super) async fn ask_for_a_batch<S: Store>(
    process: &Prefetching<S>,
    way: &Way,
    subject: &Subject,
) -> JoinSet<Decision> {
    *way.back.lock().unwrap() = DEADLINE / 2;
    let asked = ask_at_once(process, subject, 20).await;
    let remaining = way.fleet.look(subject).remaining();
    assert!(remaining < 10_000 - 20, "none on its way");
    asked
}

/// The decision, if it needs no round trip.
pub(super) fn in_hand<S: Store>(
    process: &Prefetching<S>,
    subject: &Subject,
    cost: u64,
) -> Option<Decision> {
    match process.ask(&[subject.check(Action::acquire(cost))]) {
        Answer::Ready(answer) => Some(answer.unwrap()[0]),
        Answer::Pending(_) => None,
    }
}

/// Lets every task run that is ready now.
pub(super) async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}
