//! The circuit breaker as a state machine: instants and answers in, states out. No clock, no lock.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::StoreErrorKind;
use crate::observe::BreakerState;

mod counts;
mod health;

use self::counts::{Counts, WINDOW};
pub(super) use self::health::{Health, is_answered};

/// How long the store is left alone at first; twice as long after each probe that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The same where the store answers, and be it that it refuses: then a probe costs neither waiting
/// nor connecting.
const LONGEST_PAUSE_IF_ANSWERED: Duration = Duration::from_millis(800);
/// So long after one part of a store has answered, a failure is another part's. Who cannot reach that one
/// sends nothing, so that leaving the store alone would spare nobody anything.
const WORKS_IN_PART: Duration = WINDOW;
const WORKS_IN_PART_IF_UNREACHABLE: Duration = Duration::from_secs(10);
/// A probe that is not over so long after its deadline is lost: it is one that nobody polls any more,
/// as of a caller who gave up waiting and keeps what he waited for. Until then nobody else asks, and a store that is
/// back is to be asked within a second.
const LOST_AFTER: Duration = Duration::from_millis(500);
/// Every pause is longer or shorter by up to so much of itself, in percent: a fleet that lost its
/// store in one moment does not come back to it in one.
const JITTER: u64 = 20;

/// A question that is let through to the store; its answer is told with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Answers to what was asked before the last change of mind are of no interest any more.
    epoch: u64,
    is_probe: bool,
}

impl Pass {
    /// One of those that are let through while it is closed.
    #[inline]
    pub(super) fn while_closed(epoch: u64) -> Self {
        Self {
            epoch,
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
    /// Why it is open, or why it was.
    why: Option<StoreErrorKind>,
    /// The last answer that was none of these.
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
        /// The probe is lost if it is not over by then.
        until: Instant,
    },
}

impl Circuit {
    /// A closed one; the seed makes the jitter.
    pub(super) fn new(seed: u64, has_parts: bool) -> Self {
        Self {
            has_parts,
            phase: Phase::Closed(Counts::default()),
            epoch: 0,
            pause: FIRST_PAUSE,
            why: None,
            worked: None,
            // A generator of this kind stays at zero.
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

    /// Why it opened.
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

    /// The question is on its way, and answered by this time, one way or another.
    pub(super) fn sent(&mut self, pass: Pass, deadline: Instant) {
        if pass.is_probe && self.is_current(pass) {
            self.phase = Phase::HalfOpen {
                until: deadline + LOST_AFTER,
            };
        }
    }

    /// What it tells that no answer to a question was read, where this process stood still at the deadline. Of all
    /// that were on their way then one is taken for a failure: so a process that is always late finds a store that
    /// hangs, too, while one that works has answered somebody before there are too many.
    pub(super) fn overslept(&mut self, asked: Instant, now: Instant) -> Health {
        let is_failure = match &mut self.phase {
            Phase::Closed(counts) => counts.is_first_overslept(asked, now),
            Phase::Open { .. } | Phase::HalfOpen { .. } => true,
        };
        match is_failure {
            true => Health::Fails(StoreErrorKind::TimedOut),
            false => Health::Unknown,
        }
    }

    /// A part of the store has answered to a question on which another one has failed.
    pub(super) fn answered_in_part(&mut self, pass: Pass, now: Instant) {
        if self.is_current(pass) {
            self.worked = Some(now);
            if self.state() != BreakerState::Closed {
                self.close();
            }
        }
    }

    /// The question was answered. A failure while others are answered is one of a part of the store, and
    /// no reason to leave all of it alone, unless most of those who ask wait in vain. Whether it is one.
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
                if counts.are_too_bad() {
                    self.open(FIRST_PAUSE, kind, now);
                }
                return is_of_part;
            }
            (_, Health::Works) => self.close(),
            (_, Health::Fails(kind)) => self.open(self.pause * 2, kind, now),
        }
        false
    }

    /// Until when an answer that the store works changes nothing but how many there were.
    pub(super) fn quiet_until(&self) -> Option<Instant> {
        match &self.phase {
            // Of several servers it is of interest when one of them worked last.
            Phase::Closed(counts) if !self.has_parts => counts.quiet_until(),
            _ => None,
        }
    }

    /// There were so many of those.
    pub(super) fn worked_quietly(&mut self, answers: u64) {
        if let Phase::Closed(counts) = &mut self.phase {
            counts.count_quiet(answers);
        }
    }

    /// Nobody will hear the answer. The next question may probe, at once: a client that goes away
    /// says nothing about the store, in neither way.
    pub(super) fn given_up(&mut self, pass: Pass, now: Instant) {
        if pass.is_probe && self.is_current(pass) {
            self.phase = Phase::Open {
                until: now,
                is_claimed: false,
            };
        }
    }

    /// The store was heard to answer again: what is left of the pause is not waited for. Nor is a question,
    /// where the store has parts: the next one may be about another part than was heard.
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
            // A wrong password does not mend itself, and servers lock out those who keep trying.
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
        // Marsaglia's xorshift: enough to scatter.
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
