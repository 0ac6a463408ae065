//! Penalty box: a subject that is denied too often is banned for a time. Mirrors `lua/penalty.lua`.
//!
//! Its check follows those of all rates of the limit that it guards, in the same question, and counts
//! their denials: see [`committed`](super::committed).

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::action::{Acquire, Action};
use super::arithmetic::{Arithmetic, Left};
use super::reading::{Arguments, Reading, Share, padded};
use crate::error::ConfigError;
use crate::limit::{Words, validate_time};
use crate::time::Micros;

/// Bans a subject that is denied too often within a time.
///
/// The denial that causes a ban already reports it. During a ban all requests of the subject are
/// denied, except those with a cost of 0. They are not counted, so hammering never prolongs a ban. When
/// a ban begins, the denials before it are forgotten.
///
/// A response reports the longer of two waits: that of the limit and that of the ban. Under a
/// [concurrency](crate::Limit::concurrency) limit, headers report the ban. Decisions by the store then
/// report the time until leases lapse if that is longer, and those from the
/// [deny cache](crate::store::DenyCache) the ban.
///
/// ```
/// use tower_throttle::{HOUR, Header, Limit, MINUTE, PeerAddr, Penalty, Policy};
///
/// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
///     .by((Header::new("x-user"), PeerAddr))
///     .penalty(Penalty::after(10, 15 * MINUTE, HOUR).doubling_up_to(24 * HOUR));
/// ```
///
/// # Who can be banned
///
/// A ban applies to the policy's key. Keyed by a name alone that clients write themselves, as at a
/// login, an attacker could lock out any user: make the client's address a part of the key, as above.
/// Clients that share a key share the ban, such as those behind one address or in one IPv6 /64, and all
/// requests without a key ([`OnMissingKey::Shared`](crate::OnMissingKey::Shared)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    denials: u32,
    within: Duration,
    ban: Duration,
    longest: Option<Duration>,
}

impl Penalty {
    /// Bans a subject for `ban` after `denials` denials (1 to 100) in any interval of length `within`.
    /// Both times are 1 ms to 366 days, in whole microseconds. After a ban the subject starts anew.
    pub const fn after(denials: u32, within: Duration, ban: Duration) -> Self {
        Self {
            denials,
            within,
            ban,
            longest: None,
        }
    }

    /// Makes each ban twice as long as the one before, up to `longest`. The length starts anew when
    /// the subject has not been banned for `longest`.
    #[must_use]
    pub const fn doubling_up_to(mut self, longest: Duration) -> Self {
        self.longest = Some(longest);
        self
    }
}

/// In words: `5 denials in any 1 min ban for 10 min, doubling up to 1 d`.
impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [within, ban] = [self.within, self.ban].map(Words);
        write!(f, "{} denials in any {within} ban for {ban}", self.denials)?;
        match self.longest {
            Some(longest) => write!(f, ", doubling up to {}", Words(longest)),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PenaltyBox {
    denials: u32,
    within: Micros,
    ban: Micros,
    longest: Micros,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The instant from which nothing of this counts, by the periods with which it was written; see
    /// the sliding log.
    expires: Micros,
    /// The end of the last ban, and its length.
    banned_until: Micros,
    ban: Micros,
    /// The instants of denials, oldest first.
    denials: VecDeque<Micros>,
}

impl PenaltyBox {
    pub(super) fn new(penalty: &Penalty) -> Result<Self, ConfigError> {
        if !(1..=MOST_DENIALS).contains(&penalty.denials) {
            return Err(ConfigError::out_of_range(
                "penalty.denials",
                penalty.denials,
                "1 to 100",
            ));
        }
        let longest = penalty.longest.unwrap_or(penalty.ban);
        let valid = Self {
            denials: penalty.denials,
            within: validate_time("penalty.within", penalty.within)?,
            ban: validate_time("penalty.ban", penalty.ban)?,
            longest: validate_time("penalty.longest", longest)?,
        };
        if valid.longest < valid.ban {
            return Err(ConfigError::out_of_range(
                "penalty.longest",
                format_args!("{longest:?}"),
                "no less than the first ban",
            ));
        }
        Ok(valid)
    }

    /// The number of denials that still count.
    fn recent(&self, state: &State, now: Micros) -> usize {
        if now >= state.expires {
            return 0;
        }
        let recent = |at: &&Micros| at.saturating_add(self.within) > now;
        state.denials.iter().filter(recent).count()
    }

    /// How long a ban is remembered after its end, for the length of the next one.
    fn memory(&self) -> Micros {
        if self.longest > self.ban {
            self.longest
        } else {
            Micros::ZERO
        }
    }

    /// When nothing of this counts any more.
    fn expiry(&self, state: &State) -> Micros {
        let newest = state.denials.back();
        let denials = newest.map_or(Micros::ZERO, |newest| newest.saturating_add(self.within));
        if state.ban.is_zero() {
            return denials;
        }
        denials.max(state.banned_until.saturating_add(self.memory()))
    }

    /// How long the next ban is.
    fn next_ban(&self, state: &State, now: Micros) -> Micros {
        let remembered = state.banned_until.saturating_add(self.memory()) > now;
        if state.ban.is_zero() || !remembered || now >= state.expires {
            return self.ban;
        }
        let doubled = state.ban.saturating_add(state.ban);
        doubled.max(self.ban).min(self.longest)
    }
}

impl Arithmetic for PenaltyBox {
    type State = State;
    const IS_PENALTY: bool = true;

    /// A ban's own length is its window.
    fn repaired(&self, state: &State, now: Micros, _: &Action) -> Option<State> {
        if now >= state.expires {
            return None;
        }
        let after = |time: Micros| now.saturating_add(time);
        let is_ban_ahead = state.banned_until > after(state.ban.saturating_add(state.ban));
        let newest = state.denials.back();
        if !is_ban_ahead && newest.is_none_or(|newest| *newest <= after(self.within)) {
            return None;
        }
        let mut repaired = State {
            denials: state.denials.iter().map(|at| now.min(*at)).collect(),
            ..*state
        };
        if is_ban_ahead {
            repaired.banned_until = after(state.ban);
        }
        repaired.expires = self.expiry(&repaired);
        Some(repaired)
    }

    fn read(&self, state: &State, now: Micros, acquire: &Acquire) -> Reading {
        let rest = if now < state.expires {
            state.banned_until.saturating_sub(now)
        } else {
            Micros::ZERO
        };
        Reading {
            fits: acquire.cost == 0 || rest.is_zero(),
            wait: rest,
            level: [
                self.recent(state, now) as u64,
                self.next_ban(state, now).get(),
            ],
            next: Micros::ZERO,
            at: now,
        }
    }

    fn apply(&self, state: &mut State, now: Micros, action: &Action) {
        match action {
            Action::Acquire(Acquire { cost: 0, .. }) => {}
            Action::Acquire(_) => self.charge(state, now, 1),
            Action::Reset => *state = State::default(),
            _ => {}
        }
    }

    /// Counts a denial.
    fn charge(&self, state: &mut State, now: Micros, _: u64) {
        let ban = self.next_ban(state, now);
        if now >= state.expires {
            *state = State::default();
        }
        let lapsed = state.denials.len() - self.recent(state, now);
        state.denials.drain(..lapsed);
        // If the clock stepped back, time stands still here.
        let newest = state.denials.back().map_or(now, |newest| now.max(*newest));
        state.denials.push_back(newest);
        if state.denials.len() >= self.denials as usize {
            state.denials.clear();
            state.banned_until = now.saturating_add(ban);
            state.ban = ban;
        }
        state.expires = self.expiry(state);
    }

    fn adjust(&self, _: &mut State, _: Micros, _: &Action) {}

    fn expires_at(state: &State) -> Micros {
        state.expires
    }

    fn capacity(&self) -> u64 {
        u64::MAX
    }

    /// It counts denials, not permits.
    fn scale(&mut self, _: Share) {}

    fn quota(&self) -> (u64, Micros) {
        (self.denials.into(), self.within)
    }

    /// How many more denials until a ban, and the rest of a ban that is in force or caused by this
    /// denial.
    fn left(&self, reading: &Reading, charged: u64) -> Left {
        let [denials, next_ban] = reading.level;
        let denials = denials.saturating_add(charged.min(1));
        let left = u64::from(self.denials).saturating_sub(denials);
        let ban = if charged > 0 && left == 0 {
            Micros::new(next_ban)
        } else {
            reading.wait
        };
        Left::new(left, reading.next, ban)
    }

    fn arguments(&self, action: &Action) -> Arguments {
        padded([
            action.acquires().min(1),
            self.denials.into(),
            self.within.get(),
            self.ban.get(),
            self.longest.get(),
        ])
    }
}

const MOST_DENIALS: u32 = 100;
