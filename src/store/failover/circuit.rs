//! The circuit breaker as a state machine: instants and answers in, states out. No clock, no lock.

use super::failure_rate::{Failure, FailureRate, Health, LastSuccess, is_answered};
use crate::error::StoreErrorKind;
use crate::observer::BreakerState;
use crate::time::Micros;

/// The first pause of an open circuit. Each failed probe doubles it.
const FIRST_PAUSE: Micros = ms(250);
const LONGEST_PAUSE: Micros = ms(5_000);
/// The longest pause while the store answers, even if with a refusal: such a probe costs no timeout
/// and no connection attempt.
const LONGEST_PAUSE_IF_ANSWERED: Micros = ms(800);
/// While one part of a store has answered this recently, a failure counts as another part's. The
/// time is longer if that part is unreachable: then nothing is sent to it, so an open circuit would
/// save nothing.
const WORKS_IN_PART: Micros = ms(1_000);
const WORKS_IN_PART_IF_UNREACHABLE: Micros = ms(10_000);
/// A probe that has not ended this long after its deadline counts as lost: it is no longer polled, for
/// example because its caller keeps the future without polling it. No other question may probe until
/// then, and a store that is back must be asked within a second.
pub(super) const LOST_AFTER: Micros = ms(500);
/// Every pause is longer or shorter by up to this percentage, so that a fleet does not return to its
/// store all at once.
const JITTER: u64 = 20;

/// Goes with each call to the store, and comes back with its answer. It names the state in which the
/// store was asked: an answer counts until the next change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallToken(u64);

impl CallToken {
    /// For calls whose answer changes nothing: no change of state ever gets here.
    pub(super) const WITHOUT_EFFECT: Self = Self(u64::MAX);

    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    pub(super) const fn number(self) -> u64 {
        self.0
    }
}

pub(super) struct Circuit {
    /// Whether the store is several servers, of which one may fail while others answer.
    has_parts: bool,
    state: State,
    /// Of the calls in this state.
    token: CallToken,
    /// The last pause, without jitter.
    pause: Micros,
    /// Why the circuit is open, or was last open.
    why: Option<StoreErrorKind>,
    /// When the store last answered without this being counted as a success.
    answered: Option<Micros>,
    random: u64,
}

enum State {
    Closed(FailureRate),
    /// Nobody asks until then. The next question probes.
    Open {
        until: Micros,
    },
    /// A probe is in flight, which counts as lost if it is not over by then.
    HalfOpen {
        until: Micros,
    },
}

impl Circuit {
    /// A closed circuit. The seed determines the jitter.
    pub(super) fn new(seed: u64, has_parts: bool) -> Self {
        Self {
            has_parts,
            state: State::Closed(FailureRate::default()),
            token: CallToken(0),
            pause: FIRST_PAUSE,
            why: None,
            answered: None,
            // A xorshift generator never leaves zero.
            random: seed.max(1),
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed(_) => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Why the circuit is open, or was last open.
    pub(super) fn why(&self) -> Option<StoreErrorKind> {
        self.why
    }

    /// The token of all calls while the circuit is closed.
    pub(super) fn token_if_closed(&self) -> Option<CallToken> {
        matches!(self.state, State::Closed(_)).then_some(self.token)
    }

    /// Whether the store may be asked: the circuit is closed, or the next question probes.
    pub(super) fn may_call(&self, now: Micros) -> bool {
        self.left_alone_until().is_none_or(|until| now >= until)
    }

    pub(super) fn left_alone_until(&self) -> Option<Micros> {
        match self.state {
            State::Closed(_) => None,
            State::Open { until } | State::HalfOpen { until } => Some(until),
        }
    }

    /// Begins a call that ends by `deadline`, with or without an answer. `None` if the store must
    /// not be asked.
    pub(super) fn begin_call(&mut self, now: Micros, deadline: Micros) -> Option<CallToken> {
        if !self.may_call(now) {
            return None;
        }
        if self.token_if_closed().is_none() {
            self.enter(State::HalfOpen {
                until: deadline.saturating_add(LOST_AFTER),
            });
        }
        Some(self.token)
    }

    /// The store answered, or one of its parts. While the circuit is closed, this need not be called for
    /// what is counted as a success.
    pub(super) fn succeeded(&mut self, token: CallToken, now: Micros) {
        if token == self.token {
            self.answered = Some(now);
            self.close();
        }
    }

    /// The store failed. Returns whether only a part of it did, while others answer. Then the circuit
    /// opens only if half of the questions time out.
    pub(super) fn failed(
        &mut self,
        token: CallToken,
        kind: StoreErrorKind,
        success: LastSuccess,
        now: Micros,
    ) -> bool {
        if token != self.token {
            return false;
        }
        let State::Closed(rate) = &mut self.state else {
            self.open(self.pause.saturating_add(self.pause), kind, now);
            return false;
        };
        let recently = match kind {
            StoreErrorKind::Unreachable => WORKS_IN_PART_IF_UNREACHABLE,
            _ => WORKS_IN_PART,
        };
        let answered = self.answered.max(success.at);
        let is_recent = answered.is_some_and(|at| now < at.saturating_add(recently));
        let (failure, counts) = match self.has_parts && is_recent {
            true => (Failure::OfPart, kind == StoreErrorKind::TimedOut),
            false => (Failure::OfStore, true),
        };
        if counts && rate.is_too_high_after(failure, success, now) {
            self.open(FIRST_PAUSE, kind, now);
        }
        failure == Failure::OfPart
    }

    /// The answer is no evidence about the store, or will not be read. If it was a probe, the next
    /// question may probe at once.
    pub(super) fn gave_up(&mut self, token: CallToken, now: Micros) {
        if token == self.token && matches!(self.state, State::HalfOpen { .. }) {
            self.enter(State::Open { until: now });
        }
    }

    /// The health to report for a question whose deadline passed while this process stood still.
    /// One question of each standstill counts as a failure. So a process that is always late still
    /// notices a store that hangs, while a store that works answers other questions before there are
    /// too many failures.
    pub(super) fn missed_in_standstill(&mut self, asked: Micros, now: Micros) -> Health {
        let is_failure = match &mut self.state {
            State::Closed(rate) => rate.begins_standstill(asked, now),
            State::Open { .. } | State::HalfOpen { .. } => true,
        };
        match is_failure {
            true => Health::Fails(StoreErrorKind::TimedOut),
            false => Health::Unknown,
        }
    }

    /// The store has answered again, so the rest of the pause is skipped. A store with parts needs no
    /// probe either, which might ask another part than the one that has answered.
    pub(super) fn recovered(&mut self, now: Micros) {
        match &mut self.state {
            State::Closed(_) => {}
            _ if self.has_parts => self.succeeded(self.token, now),
            State::Open { until } => *until = now.min(*until),
            // The probe in flight decides.
            State::HalfOpen { .. } => {}
        }
    }

    fn close(&mut self) {
        if self.token_if_closed().is_none() {
            self.enter(State::Closed(FailureRate::default()));
        }
    }

    fn open(&mut self, pause: Micros, why: StoreErrorKind, now: Micros) {
        self.pause = match why {
            // A wrong password stays wrong, and servers lock out clients that keep trying.
            StoreErrorKind::Configuration => LONGEST_PAUSE,
            why if is_answered(why) => pause.min(LONGEST_PAUSE_IF_ANSWERED),
            _ => pause.min(LONGEST_PAUSE),
        };
        self.why = Some(why);
        let until = now.saturating_add(self.jittered_pause());
        self.enter(State::Open { until });
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.token.0 += 1;
    }

    fn jittered_pause(&mut self) -> Micros {
        // Marsaglia's xorshift: good enough for jitter.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let percent = 100 - JITTER + self.random % (2 * JITTER + 1);
        Micros::new(self.pause.get() * percent / 100)
    }
}

const fn ms(milliseconds: u64) -> Micros {
    Micros::new(milliseconds * 1_000)
}
