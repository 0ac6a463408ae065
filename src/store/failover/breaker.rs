//! `Breaker`: the circuit breaker that all questions share.
//!
//! While it is closed, a question costs one load, and its success is counted without a lock. Only
//! failures, and questions while it is not closed, take the lock of the circuit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::breaker_log::{BreakerLog, StateChange};
use super::circuit::{CallToken, Circuit};
use super::failure_rate::{Health, Successes, is_answered};
use super::outage::{Enforced, Outage};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::notifications::Notifications;
use crate::observer::{BreakerState, Observer as _, Observers};
use crate::random::random;
use crate::sharded::{Count, ShardedArc, ShardedRef};
use crate::store::Check;
use crate::time::Micros;

pub(crate) struct Breaker {
    inner: Mutex<Inner>,
    /// The token of calls while the circuit is closed, else [`CallToken::WITHOUT_EFFECT`]. Read without
    /// the lock: a reader that is a moment late calls a store that has just failed, or lets the failure
    /// modes decide once more.
    token_if_closed: AtomicU64,
    successes: Successes,
    /// How many requests have passed uncounted.
    uncounted: Count,
    started: Instant,
    /// Whether the store is several servers, of which one may fail while others answer.
    has_parts: bool,
    pub(super) log: BreakerLog,
    observers: Observers,
    changes: Notifications<StateChange>,
}

struct Inner {
    circuit: Circuit,
    /// The outage, while the circuit is not closed.
    outage: Option<Began>,
}

/// The beginning of an outage.
#[derive(Clone, Copy)]
struct Began {
    at: Instant,
    /// How many requests had passed uncounted by then.
    uncounted: u64,
}

impl Breaker {
    /// `has_parts`: whether the store can fail in parts.
    pub(super) fn new(
        has_parts: bool,
        store: String,
        policies: Arc<dyn Enforced>,
        observers: Observers,
    ) -> Self {
        let circuit = Circuit::new(random(), has_parts);
        Self {
            token_if_closed: AtomicU64::new(published(&circuit)),
            inner: Mutex::new(Inner {
                circuit,
                outage: None,
            }),
            successes: Successes::default(),
            uncounted: Count::default(),
            started: Instant::now(),
            has_parts,
            log: BreakerLog::new(store, policies),
            observers,
            changes: Notifications::default(),
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.lock().circuit.state()
    }

    /// The store's name.
    pub(crate) fn store(&self) -> &str {
        self.log.store()
    }

    /// The outage, while the circuit is not closed.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.outage_of(&self.lock())
    }

    fn outage_of(&self, inner: &Inner) -> Option<Outage> {
        let began = inner.outage?;
        Some(Outage {
            duration: began.at.elapsed(),
            reason: inner.circuit.why()?,
            uncounted: self.uncounted.sum().saturating_sub(began.uncounted),
        })
    }

    /// The failure modes have decided about this question.
    pub(super) fn decided_without(&self, checks: &[Check<'_>], decisions: &Decisions) {
        if passes_uncounted(checks, decisions) {
            self.uncounted.add();
        }
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.token_if_closed().is_some()
    }

    /// Whether the store may be asked: the circuit is closed, or the next question probes.
    pub(super) fn may_call(&self) -> bool {
        self.is_closed() || self.lock().circuit.may_call(self.at(Instant::now()))
    }

    /// A question starts its round trip, which takes at most `timeout`. `None` if the store must not
    /// be asked, because the circuit is open or another question probes.
    pub(super) fn begin_call(this: &ShardedArc<Self>, timeout: Duration) -> Option<AnswerGuard> {
        let token = match this.token_if_closed() {
            Some(token) => token,
            None => {
                let now = Instant::now();
                let deadline = this.at(now + timeout);
                this.update(None, |circuit| circuit.begin_call(this.at(now), deadline))?
            }
        };
        Some(AnswerGuard::new(this, token))
    }

    /// A question starts its round trip whatever the state. Its answer does not change it.
    pub(super) fn begin_call_regardless(this: &ShardedArc<Self>) -> AnswerGuard {
        AnswerGuard::new(this, CallToken::WITHOUT_EFFECT)
    }

    /// Whether the breaker is open, or was last open, because the store does not answer. Not if it
    /// answers with a refusal.
    pub(super) fn is_unanswered(&self) -> bool {
        let why = self.lock().circuit.why();
        why.is_some_and(|why| !is_answered(why))
    }

    /// The store has answered again: the next question may probe.
    pub(super) fn recovered(&self) {
        let now = self.at(Instant::now());
        self.update(None, |circuit| circuit.recovered(now));
    }

    /// A call was answered. Returns whether a part of the store failed, while others answer.
    fn answered(
        &self,
        token: CallToken,
        health: Health,
        failure: Option<&StoreError>,
        now: Instant,
    ) -> bool {
        let now = self.at(now);
        if health == Health::Works && self.token_if_closed() == Some(token) {
            self.successes.add(now);
            return false;
        }
        self.update(failure, |circuit| {
            if health == Health::Works || failure.is_some_and(StoreError::is_of_part) {
                circuit.succeeded(token, now);
            }
            match health {
                Health::Works => false,
                Health::Unknown => {
                    circuit.gave_up(token, now);
                    false
                }
                Health::Fails(kind) => circuit.failed(token, kind, self.successes.last(), now),
            }
        })
    }

    #[inline]
    fn token_if_closed(&self) -> Option<CallToken> {
        let token = CallToken::from_number(self.token_if_closed.load(Ordering::Relaxed));
        (token != CallToken::WITHOUT_EFFECT).then_some(token)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No step under the lock leaves anything half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that may change the state goes through here. `failure`: what causes the change, for
    /// the log.
    fn update<T>(&self, failure: Option<&StoreError>, update: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut inner = self.lock();
        let from = inner.circuit.state();
        let result = update(&mut inner.circuit);
        let to = inner.circuit.state();
        if from == to {
            return result;
        }
        self.token_if_closed
            .store(published(&inner.circuit), Ordering::Relaxed);
        let mut ended = None;
        if from == BreakerState::Closed {
            inner.outage = Some(Began {
                at: Instant::now(),
                uncounted: self.uncounted.sum(),
            });
        } else if to == BreakerState::Closed {
            ended = self.outage_of(&inner);
            inner.outage = None;
        }
        self.changes.push(StateChange {
            from,
            to,
            why: inner.circuit.why(),
            failure: failure.cloned(),
            ended,
        });
        drop(inner);
        self.changes.deliver(|change| {
            self.log.changed(&change);
            self.observers.on_breaker(change.to);
        });
        result
    }

    /// The circuit's time. It is never zero, which stands for never.
    fn at(&self, instant: Instant) -> Micros {
        let elapsed = instant.saturating_duration_since(self.started);
        Micros::from(elapsed).saturating_add(Micros::new(1))
    }
}

fn published(circuit: &Circuit) -> u64 {
    let token = circuit.token_if_closed();
    token.unwrap_or(CallToken::WITHOUT_EFFECT).number()
}

/// Reports the answer to a question in flight to the breaker. If a probe is dropped without an answer,
/// the next question probes.
pub(super) struct AnswerGuard {
    breaker: ShardedRef<Breaker>,
    token: CallToken,
    /// Whether the answer is still to come.
    is_open: bool,
    /// Whether it was handed on.
    is_handed_on: bool,
}

impl AnswerGuard {
    fn new(breaker: &ShardedArc<Breaker>, token: CallToken) -> Self {
        Self {
            breaker: breaker.hold(),
            token,
            is_open: true,
            is_handed_on: false,
        }
    }

    /// The guard for the task that waits for the answer after the caller has left; `None` if the
    /// answer has arrived. It is handed on once: a task has no successor, and ends with its runtime.
    pub(super) fn handed_on(&mut self) -> Option<Self> {
        let is_left = self.is_open && !self.is_handed_on;
        is_left.then(|| Self {
            breaker: self.breaker.clone(),
            token: self.token,
            is_open: std::mem::replace(&mut self.is_open, false),
            is_handed_on: true,
        })
    }

    /// The round trip ended without decisions.
    pub(super) fn failed(&mut self, asked: Instant, error: &StoreError) {
        self.breaker.log.warn_if_lasting(error);
        self.answered(asked, Health::of_failure(error), Some(error));
    }

    /// The deadline passed before this process read an answer, because the process stood still.
    pub(super) fn missed_in_standstill(&mut self, asked: Instant) {
        let (breaker, now) = (&self.breaker, Instant::now());
        let mut inner = breaker.lock();
        let health = inner
            .circuit
            .missed_in_standstill(breaker.at(asked), breaker.at(now));
        drop(inner);
        let error = StoreError::new(StoreErrorKind::TimedOut);
        self.answered(asked, health, Some(&error));
    }

    /// The failure modes have decided about this question.
    pub(super) fn decided_without(&self, checks: &[Check<'_>], decisions: &Decisions) {
        self.breaker.decided_without(checks, decisions);
    }

    /// The round trip ended with decisions. If the store has parts, some may say that their part
    /// failed.
    pub(super) fn decided(&mut self, asked: Instant, decisions: &Decisions) {
        let failure = decisions.iter().find_map(Decision::store_failure);
        let failure = failure.map(StoreError::new);
        if let Some(error) = &failure {
            self.breaker.log.warn_if_lasting(error);
        }
        let of_part = failure.filter(|_| self.breaker.has_parts);
        self.answered(asked, Health::Works, of_part.as_ref());
    }

    /// `health`: what the answer shows to the circuit. `failure`: what of it has failed.
    fn answered(&mut self, asked: Instant, health: Health, failure: Option<&StoreError>) {
        self.is_open = false;
        let (breaker, now) = (&*self.breaker, Instant::now());
        let is_of_part = breaker.answered(self.token, health, failure, now);
        let shown = failure.map_or(Health::Works, Health::of_failure);
        if let (Some(error), Health::Fails(_)) = (failure, shown)
            && (is_of_part || health == Health::Works)
        {
            breaker.log.warn_of_part(error);
        }
        // A question that was never sent would make the store look fast when it is slowest.
        if shown != Health::Unknown {
            let elapsed = now.saturating_duration_since(asked);
            let why = failure.map(StoreError::kind);
            breaker.observers.on_store_answer(elapsed, why);
        }
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        let breaker = &self.breaker;
        if self.is_open && breaker.token_if_closed() != Some(self.token) {
            let now = breaker.at(Instant::now());
            breaker.update(None, |circuit| circuit.gave_up(self.token, now));
        }
    }
}

/// Whether a request goes on that an enforced policy would have counted.
fn passes_uncounted(checks: &[Check<'_>], decisions: &Decisions) -> bool {
    let is_taken = |check: &Check<'_>| match check.action {
        Action::Acquire(acquire) => acquire.cost > 0 && !check.is_shadow,
        _ => false,
    };
    let has_failed_open =
        |decision: &Decision| matches!(decision.outcome(), Outcome::FailedOpen(_));
    let mut each = checks.iter().zip(decisions.iter());
    decisions.all_allow()
        && each.any(|(check, decision)| is_taken(check) && has_failed_open(decision))
}
