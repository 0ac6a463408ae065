//! The circuit breaker as a state machine: instants and answers in, states out. No clock, no lock.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::StoreErrorKind;
use crate::observe::BreakerState;

mod counts;
mod health;

use self::counts::{Counts, WINDOW};
pub(super) use self::health::{Health, is_answered};

/// How long the store is left alone at first. Each failed probe doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause while the store answers, even if with a refusal: such a probe costs no timeout
/// and no connection attempt.
const LONGEST_PAUSE_IF_ANSWERED: Duration = Duration::from_millis(800);
/// While one part of a store has answered this recently, a failure counts as another part's. The
/// time is longer if that part is unreachable: nothing is sent to it, so leaving the store alone
/// would spare nothing.
const WORKS_IN_PART: Duration = WINDOW;
const WORKS_IN_PART_IF_UNREACHABLE: Duration = Duration::from_secs(10);
/// A probe that is not over this long after its deadline counts as lost: nobody polls it any more,
/// for example because the caller gave up but keeps the future. Nobody else may probe until then,
/// and a store that is back must be asked within a second.
const LOST_AFTER: Duration = Duration::from_millis(500);
/// Every pause is longer or shorter by up to this percentage, so that a fleet that lost its store
/// at one moment does not return to it all at once.
const JITTER: u64 = 20;

/// A question that was let through to the store. Its answer is reported with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Answers to questions from before the last change of state are ignored.
    epoch: u64,
    is_probe: bool,
}

impl Pass {
    /// The pass of an ordinary question, while the circuit is closed.
    #[inline]
    pub(super) fn while_closed(epoch: u64) -> Self {
        Self {
            epoch,
            is_probe: false,
        }
    }

    /// The pass of a question that is asked whatever the state: its answer changes nothing.
    pub(super) fn regardless() -> Self {
        Self {
            // No change of state ever gets there.
            epoch: u64::MAX,
            is_probe: false,
        }
    }

    pub(super) fn is_probe(&self) -> bool {
        self.is_probe
    }
}

pub(super) struct Circuit {
    /// Whether the store is several servers, of which one may fail while others answer.
    has_parts: bool,
    phase: Phase,
    epoch: u64,
    /// The last pause, without jitter.
    pause: Duration,
    /// Why the circuit is open, or was last open.
    why: Option<StoreErrorKind>,
    /// When the store last answered without a failure.
    worked: Option<Instant>,
    random: u64,
}

enum Phase {
    Closed(Counts),
    Open {
        until: Instant,
        /// Somebody is about to probe.
        is_claimed: bool,
    },
    HalfOpen {
        /// The probe counts as lost if it is not over by then.
        until: Instant,
    },
}

impl Circuit {
    /// A closed circuit. The seed determines the jitter.
    pub(super) fn new(seed: u64, has_parts: bool) -> Self {
        Self {
            has_parts,
            phase: Phase::Closed(Counts::default()),
            epoch: 0,
            pause: FIRST_PAUSE,
            why: None,
            worked: None,
            // A xorshift generator never leaves zero.
            random: seed.max(1),
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed(_) => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Why the circuit is open, or was last open.
    pub(super) fn why(&self) -> Option<StoreErrorKind> {
        self.why
    }

    /// When the next question may probe the store; `None` while nobody may.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Open {
                until,
                is_claimed: false,
            }
            | Phase::HalfOpen { until } => Some(until),
            _ => None,
        }
    }

    /// Whether a question may be asked now.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Pass> {
        match &mut self.phase {
            Phase::Closed(_) => Some(Pass::while_closed(self.epoch)),
            Phase::Open {
                until,
                is_claimed: false,
            }
            | Phase::HalfOpen { until }
                if now >= *until =>
            {
                self.phase = Phase::Open {
                    until: *until,
                    is_claimed: true,
                };
                self.epoch += 1;
                Some(Pass {
                    epoch: self.epoch,
                    is_probe: true,
                })
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// The question was sent and will be over by `deadline`, with or without an answer.
    pub(super) fn sent(&mut self, pass: Pass, deadline: Instant) {
        if pass.is_probe && self.is_current(pass) {
            self.phase = Phase::HalfOpen {
                until: deadline + LOST_AFTER,
            };
        }
    }

    /// The health to report for a question whose deadline passed while this process stood still.
    /// One question of each standstill counts as a failure. So a process that is always late still
    /// notices a store that hangs, while a store that works has answered somebody before there are
    /// too many failures.
    pub(super) fn missed_in_standstill(&mut self, asked: Instant, now: Instant) -> Health {
        let is_failure = match &mut self.phase {
            Phase::Closed(counts) => counts.begins_standstill(asked, now),
            Phase::Open { .. } | Phase::HalfOpen { .. } => true,
        };
        match is_failure {
            true => Health::Fails(StoreErrorKind::TimedOut),
            false => Health::Unknown,
        }
    }

    /// One part of the store answered a question on which another part failed.
    pub(super) fn answered_in_part(&mut self, pass: Pass, now: Instant) {
        if self.is_current(pass) {
            self.worked = Some(now);
            if self.state() != BreakerState::Closed {
                self.close();
            }
        }
    }

    /// The question was answered. Returns whether the failure was one of a part of the store, while
    /// others answer. That is no reason to leave the whole store alone, unless half of the
    /// questions time out.
    pub(super) fn answered(&mut self, pass: Pass, health: Health, now: Instant) -> bool {
        if !self.is_current(pass) {
            return false;
        }
        let lately = |worked: Instant| now < worked + works_in_part_for(health);
        let is_of_part = self.has_parts && self.worked.is_some_and(lately);
        if health == Health::Works {
            self.worked = Some(now);
        }
        match (&mut self.phase, health) {
            (_, Health::Unknown) => self.given_up(pass, now),
            (Phase::Closed(counts), Health::Works) => counts.count(false, now),
            (Phase::Closed(counts), Health::Fails(kind)) => {
                match kind {
                    _ if !is_of_part => counts.count(true, now),
                    StoreErrorKind::TimedOut => counts.count_in_window(true, now),
                    _ => {}
                }
                if counts.show_an_outage() {
                    self.open(FIRST_PAUSE, kind, now);
                }
                return is_of_part;
            }
            (_, Health::Works) => self.close(),
            (_, Health::Fails(kind)) => self.open(self.pause * 2, kind, now),
        }
        false
    }

    /// Until when a successful answer changes nothing but the count.
    pub(super) fn quiet_until(&self) -> Option<Instant> {
        match &self.phase {
            // With several servers it matters when one of them last worked.
            Phase::Closed(counts) if !self.has_parts => counts.quiet_until(),
            _ => None,
        }
    }

    /// Adds answers that were only counted.
    pub(super) fn worked_quietly(&mut self, answers: u64) {
        if let Phase::Closed(counts) = &mut self.phase {
            counts.count_quiet(answers);
        }
    }

    /// Nobody will read the answer. The next question may probe at once: a caller that goes away
    /// shows nothing about the store.
    pub(super) fn given_up(&mut self, pass: Pass, now: Instant) {
        if pass.is_probe && self.is_current(pass) {
            self.phase = Phase::Open {
                until: now,
                is_claimed: false,
            };
        }
    }

    /// The store was heard to answer again, so the rest of the pause is skipped. A store with parts
    /// needs no probe either: the probe might ask another part than the one that was heard.
    pub(super) fn recovered(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Closed(_) => {}
            _ if self.has_parts => {
                self.worked = Some(now);
                self.close();
            }
            Phase::Open { until, .. } => *until = now.min(*until),
            Phase::HalfOpen { .. } => {}
        }
    }

    fn is_current(&self, pass: Pass) -> bool {
        pass.epoch == self.epoch
    }

    fn close(&mut self) {
        self.epoch += 1;
        self.phase = Phase::Closed(Counts::default());
    }

    fn open(&mut self, pause: Duration, why: StoreErrorKind, now: Instant) {
        self.pause = match why {
            // A wrong password does not mend itself, and servers lock out clients that keep trying.
            StoreErrorKind::Configuration => LONGEST_PAUSE,
            why if is_answered(why) => pause.min(LONGEST_PAUSE_IF_ANSWERED),
            _ => pause.min(LONGEST_PAUSE),
        };
        self.epoch += 1;
        self.why = Some(why);
        self.phase = Phase::Open {
            until: now + self.jittered(),
            is_claimed: false,
        };
    }

    fn jittered(&mut self) -> Duration {
        // Marsaglia's xorshift: good enough for jitter.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let percent = 100 - JITTER + self.random % (2 * JITTER + 1);
        self.pause * percent as u32 / 100
    }
}

fn works_in_part_for(health: Health) -> Duration {
    match health {
        Health::Fails(StoreErrorKind::Unreachable) => WORKS_IN_PART_IF_UNREACHABLE,
        _ => WORKS_IN_PART,
    }
}

#[cfg(test)]
mod tests;
