//! `Breaker`: the circuit breaker that all questions share, and the observers of its state.
//!
//! While it is closed, a question costs one load. While it is open, it costs two loads and a look
//! at the clock. Only probes and answers that may change the state take the lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::circuit::{Circuit, Health, Pass, is_answered};
use super::outage::{Enforced, Outage};
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::notifications::Notifications;
use crate::observe::{BreakerState, Observer as _, Observers};
use crate::per_thread::{Count, Spread, SpreadRef};
use crate::random::random;
use crate::store::Check;

mod telling;

use telling::{Change, Telling, Warnings};

pub(crate) struct Breaker {
    inner: Mutex<Inner>,
    /// Whether the store is several servers, of which one may fail while others answer.
    has_parts: bool,
    /// The state in the two lowest bits, the circuit's epoch above. Read without the lock: a reader
    /// that is a moment late asks a store that has just failed, or decides once more without it.
    word: AtomicU64,
    /// When the next question may probe, in microseconds after `since`.
    probe_at_us: AtomicU64,
    /// Until then a successful answer only has to be counted. In microseconds after `since`; zero
    /// while every answer may change the state.
    quiet_until_us: AtomicU64,
    /// How many answers were only counted.
    worked_quietly: Count,
    /// How many requests have passed uncounted.
    uncounted: Count,
    since: Instant,
    /// The store's name.
    store: String,
    policies: Arc<dyn Enforced>,
    observers: Observers,
    warnings: Mutex<Warnings>,
}

struct Inner {
    circuit: Circuit,
    /// How many of those the circuit already knows of.
    known_quiet: u64,
    changes: Notifications<Change>,
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

/// How a question may be asked.
pub(super) enum Admission {
    /// As an ordinary question, while the breaker is closed.
    Pass(Pass),
    /// As the probe that finds out whether the store is back.
    Probe(Ticket),
}

impl Breaker {
    /// `has_parts`: whether the store can fail in parts.
    pub(super) fn new(
        has_parts: bool,
        store: String,
        policies: Arc<dyn Enforced>,
        observers: Observers,
    ) -> Self {
        Self::seeded(random(), has_parts, store, policies, observers)
    }

    fn seeded(
        seed: u64,
        has_parts: bool,
        store: String,
        policies: Arc<dyn Enforced>,
        observers: Observers,
    ) -> Self {
        let breaker = Self {
            has_parts,
            inner: Mutex::new(Inner {
                circuit: Circuit::new(seed, has_parts),
                known_quiet: 0,
                changes: Notifications::default(),
                outage: None,
            }),
            word: AtomicU64::new(0),
            probe_at_us: AtomicU64::new(0),
            quiet_until_us: AtomicU64::new(0),
            worked_quietly: Count::default(),
            uncounted: Count::default(),
            since: Instant::now(),
            store,
            policies,
            observers,
            warnings: Mutex::default(),
        };
        breaker.publish(&breaker.lock().circuit);
        breaker
    }

    pub(crate) fn state(&self) -> BreakerState {
        state_of(self.word.load(Ordering::Relaxed))
    }

    /// The store's name.
    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// The outage, while the circuit is not closed.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let inner = self.lock();
        let began = inner.outage?;
        Some(self.outage_since(began, inner.circuit.why()?))
    }

    fn outage_since(&self, began: Began, reason: StoreErrorKind) -> Outage {
        Outage {
            duration: began.at.elapsed(),
            reason,
            uncounted: self.uncounted.sum().saturating_sub(began.uncounted),
        }
    }

    /// The failure modes have decided about this question.
    pub(super) fn decided_without(&self, checks: &[Check<'_>], decisions: &Decisions) {
        if passes_uncounted(checks, decisions) {
            self.uncounted.add();
        }
    }

    /// The fast path: lets a question pass while the breaker is closed.
    #[inline]
    pub(super) fn pass_while_closed(&self) -> Option<Pass> {
        let word = self.word.load(Ordering::Relaxed);
        let is_closed = state_of(word) == BreakerState::Closed;
        is_closed.then(|| Pass::while_closed(word >> STATE_BITS))
    }

    /// Whether a question may be asked; `None` while the store is left alone.
    pub(super) fn admit(this: &Spread<Self>) -> Option<Admission> {
        match this.pass_while_closed() {
            Some(pass) => Some(Admission::Pass(pass)),
            None => Self::admit_unless_closed(this),
        }
    }

    #[cold]
    #[inline(never)]
    fn admit_unless_closed(this: &Spread<Self>) -> Option<Admission> {
        let now = Instant::now();
        if this.micros(now) < this.probe_at_us.load(Ordering::Relaxed) {
            return None;
        }
        let pass = this.change(|circuit| circuit.admit(now))?;
        Some(if pass.is_probe() {
            Admission::Probe(Self::ticket(this, pass))
        } else {
            Admission::Pass(pass)
        })
    }

    /// The question starts its round trip, which takes at most `deadline`.
    pub(super) fn sent(this: &Spread<Self>, admission: Admission, deadline: Duration) -> Ticket {
        match admission {
            Admission::Pass(pass) => Self::ticket(this, pass),
            Admission::Probe(ticket) => {
                let deadline = Instant::now() + deadline;
                this.change(|circuit| circuit.sent(ticket.pass, deadline));
                ticket
            }
        }
    }

    /// Whether the breaker is open, or was last open, because the store does not answer. Not if it
    /// answers with a refusal.
    pub(super) fn is_unanswered(&self) -> bool {
        let why = self.lock().circuit.why();
        why.is_some_and(|why| !is_answered(why))
    }

    /// The store was heard to answer again: the next question may probe.
    pub(super) fn recovered(&self) {
        let now = Instant::now();
        self.change(|circuit| circuit.recovered(now));
    }

    fn ticket(this: &Spread<Self>, pass: Pass) -> Ticket {
        Ticket {
            breaker: this.hold(),
            pass,
            is_open: true,
            is_handed_on: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No step under the lock leaves anything half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Circuit) -> T) -> T {
        self.change_upon(None, change)
    }

    fn change_upon<T>(
        &self,
        failure: Option<&StoreError>,
        change: impl FnOnce(&mut Circuit) -> T,
    ) -> T {
        let mut inner = self.lock();
        let from = inner.circuit.state();
        let worked = self.worked_quietly.sum();
        let unknown = worked - std::mem::replace(&mut inner.known_quiet, worked);
        inner.circuit.worked_quietly(unknown);
        let result = change(&mut inner.circuit);
        self.publish(&inner.circuit);
        let (to, why) = (inner.circuit.state(), inner.circuit.why());
        if from != to {
            let mut ended = None;
            if from == BreakerState::Closed {
                inner.outage = Some(Began {
                    at: Instant::now(),
                    uncounted: self.uncounted.sum(),
                });
            } else if to == BreakerState::Closed {
                let outage = inner.outage.take().zip(why);
                ended = outage.map(|(began, why)| self.outage_since(began, why));
            }
            inner.changes.push(Change {
                from,
                to,
                why,
                failure: failure.cloned(),
                ended,
            });
        }
        let is_to_tell = inner.changes.begin();
        drop(inner);
        if is_to_tell {
            Telling(self).tell();
        }
        result
    }

    fn publish(&self, circuit: &Circuit) {
        // Every answer comes through here and every question reads these values, so they are
        // written only when they change.
        let publish = |to: &AtomicU64, value| {
            if to.load(Ordering::Relaxed) != value {
                to.store(value, Ordering::Relaxed);
            }
        };
        let probe_at_us = circuit.probe_at().map_or(u64::MAX, |at| self.micros(at));
        publish(&self.probe_at_us, probe_at_us);
        let quiet_until_us = circuit.quiet_until().map_or(0, |until| self.micros(until));
        publish(&self.quiet_until_us, quiet_until_us);
        let word = circuit.epoch() << STATE_BITS | bits_of(circuit.state());
        publish(&self.word, word);
    }

    /// Counts a successful answer without the lock, if counting is all it calls for. Returns
    /// whether it did.
    fn works_quietly(&self, pass: Pass, now: Instant) -> bool {
        let is_quiet = self.pass_while_closed() == Some(pass)
            && self.micros(now) < self.quiet_until_us.load(Ordering::Relaxed);
        if is_quiet {
            self.worked_quietly.add();
        }
        is_quiet
    }

    fn micros(&self, at: Instant) -> u64 {
        let after = at.saturating_duration_since(self.since);
        u64::try_from(after.as_micros()).unwrap_or(u64::MAX)
    }
}

/// A question in flight. If a probe is given up without an answer, the next question probes.
pub(super) struct Ticket {
    breaker: SpreadRef<Breaker>,
    pass: Pass,
    /// Whether the answer is still to come.
    is_open: bool,
    /// Whether it was handed on.
    is_handed_on: bool,
}

impl Ticket {
    /// The ticket for whoever waits for the answer that its caller did not wait for; `None` if it is
    /// there. It is handed on once: then nobody is left but a task, which ends with its runtime.
    pub(super) fn handed_on(&mut self) -> Option<Self> {
        let is_left = self.is_open && !self.is_handed_on;
        is_left.then(|| Self {
            breaker: self.breaker.clone(),
            pass: self.pass,
            is_open: std::mem::replace(&mut self.is_open, false),
            is_handed_on: true,
        })
    }

    /// The round trip ended without decisions.
    pub(super) fn failed(&mut self, asked: Instant, error: &StoreError) {
        self.breaker.warn_if_lasting(error);
        self.over(asked, Health::of_failure(error), Some(error));
    }

    /// The deadline passed before this process read an answer, because the process stood still.
    pub(super) fn missed_in_standstill(&mut self, asked: Instant) {
        let now = Instant::now();
        let health = self.breaker.lock().circuit.missed_in_standstill(asked, now);
        let error = StoreError::new(StoreErrorKind::TimedOut);
        self.over(asked, health, Some(&error));
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
            self.breaker.warn_if_lasting(error);
        }
        let of_part = failure.filter(|_| self.breaker.has_parts);
        self.over(asked, Health::Works, of_part.as_ref());
    }

    fn over(&mut self, asked: Instant, health: Health, failure: Option<&StoreError>) {
        self.is_open = false;
        let (breaker, now) = (&self.breaker, Instant::now());
        let answered = |circuit: &mut Circuit| {
            if failure.is_some_and(StoreError::is_of_part) {
                circuit.answered_in_part(self.pass, now);
            }
            circuit.answered(self.pass, health, now)
        };
        let is_quiet =
            health == Health::Works && failure.is_none() && breaker.works_quietly(self.pass, now);
        let is_of_part = !is_quiet && breaker.change_upon(failure, answered);
        let is_beside_others = health == Health::Works;
        let told = failure.map_or(Health::Works, Health::of_failure);
        if let (Some(error), Health::Fails(_)) = (failure, told)
            && (is_of_part || is_beside_others)
        {
            breaker.warn_of_part(error);
        }
        // A question that was never sent would make the store look fast when it is slowest.
        if told != Health::Unknown {
            let elapsed = now.saturating_duration_since(asked);
            let why = failure.map(StoreError::kind);
            breaker.observers.on_store_answer(elapsed, why);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_open && self.pass.is_probe() {
            let now = Instant::now();
            self.breaker
                .change(|circuit| circuit.given_up(self.pass, now));
        }
    }
}

/// Whether a request goes on that an enforced policy would have counted.
fn passes_uncounted(checks: &[Check<'_>], decisions: &Decisions) -> bool {
    let is_taken = |check: &Check<'_>| match check.action {
        Action::Take(take) => take.cost > 0 && !check.is_shadow,
        _ => false,
    };
    let has_failed_open =
        |decision: &Decision| matches!(decision.outcome(), Outcome::FailedOpen(_));
    let mut each = checks.iter().zip(decisions.iter());
    decisions.all_allow()
        && each.any(|(check, decision)| is_taken(check) && has_failed_open(decision))
}

const STATE_BITS: u32 = 2;

fn bits_of(state: BreakerState) -> u64 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::Open => 1,
        BreakerState::HalfOpen => 2,
    }
}

fn state_of(word: u64) -> BreakerState {
    match word & ((1 << STATE_BITS) - 1) {
        0 => BreakerState::Closed,
        1 => BreakerState::Open,
        _ => BreakerState::HalfOpen,
    }
}

#[cfg(test)]
mod tests;
