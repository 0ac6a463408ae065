//! The algorithms as pure arithmetic: the specification that `lua/` mirrors, and what the memory
//! store runs.
//!
//! Every algorithm answers in two steps, here as in its script, so that several checks of one
//! request can be decided all or nothing: [`read`](Algorithm::read) tells whether the action fits
//! the state and writes nothing; [`commit`](Algorithm::commit) carries it out, and is called only
//! for those checks that [`committed`] names, and for those that do not fit, of which it repairs the
//! state. [`decide()`] turns what was read, by either half of
//! the crate, into the [`Decisions`](crate::Decisions).

use crate::decision::Decision;
use crate::time::Micros;

mod action;
mod arithmetic;
mod concurrency;
mod counting;
mod debt;
mod decide;
mod fixed_point;
mod fixed_window;
mod gcra;
mod known;
mod late;
mod leaky_bucket;
mod penalty;
mod question;
mod share;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod sound;
mod state;
mod token_bucket;

pub use self::action::{Action, LeaseId, Patience, Take};
use self::arithmetic::{Arithmetic, Left, arithmetic, arithmetic_with_state, commit, read};
#[cfg(feature = "redis")]
pub(crate) use self::debt::fast_path::FastPath;
pub(crate) use self::fixed_point::FixedMicros;
pub(crate) use self::known::Known;
pub use self::penalty::Penalty;
#[cfg(feature = "redis")]
pub(crate) use self::question::decide_denied;
pub use self::question::{Ask, committed, decide};
#[cfg(feature = "memory")]
pub(crate) use self::question::{all_enforced_fit, committed_if};
use self::share::Share;
use self::state::Remembered;
pub use self::state::State;

/// A limit that was found sound, ready to judge. Made from a [`Limit`](crate::Limit) or a
/// [`Penalty`] by `TryFrom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm(Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Gcra(debt::Debt),
    TokenBucket(debt::Debt),
    LeakyBucket(debt::Debt),
    FixedWindow(fixed_window::FixedWindow),
    SlidingLog(sliding_log::SlidingLog),
    SlidingWindow(sliding_window::SlidingWindow),
    SlidingCounter(sliding_counter::SlidingCounter),
    Concurrency(concurrency::Concurrency),
    Penalty(penalty::PenaltyBox),
}

/// What a state says about an action at an instant: the five integers that a script replies for
/// each check, and the instant, which it replies for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Whether the action fits.
    pub fits: bool,
    /// How long until it does, when it does not; how long to hold it up, when it does. Of a
    /// [`Penalty`], the rest of the ban either way.
    pub wait: Micros,
    /// Two integers that tell the state as far as a decision needs it, before permits are taken
    /// and after they are given back; what they are is said in the algorithm's script.
    pub level: [u64; 2],
    /// How long until a permit comes back, if a take or a charge leaves none: once it is carried
    /// out, or at once if it does not fit. Zero otherwise, and if the level tells that, too.
    pub next: Micros,
    /// The instant of the reading.
    pub at: Micros,
}

/// The arguments of one check in a script, after the algorithm's name and the action's verb: see
/// the script's header. Those that an algorithm does not have are zero and not sent.
pub(crate) type Arguments = [u64; MOST_ARGUMENTS];

/// The most arguments that a script takes for one check.
pub(crate) const MOST_ARGUMENTS: usize = 8;

impl Reading {
    /// A reading that a store has made where its states are, as the scripts do: what they reply, in
    /// their order, and the instant.
    pub const fn new(fits: bool, wait: Micros, level: [u64; 2], next: Micros, at: Micros) -> Self {
        Self {
            fits,
            wait,
            level,
            next,
            at,
        }
    }
}

impl Algorithm {
    /// The state of a key that was never used.
    pub fn untouched(&self) -> State {
        State(match self.0 {
            Which::Gcra(_) | Which::TokenBucket(_) | Which::LeakyBucket(_) => {
                Remembered::Debt(debt::State::default())
            }
            Which::FixedWindow(_) => Remembered::FixedWindow(fixed_window::State::default()),
            Which::SlidingLog(_) => Remembered::SlidingLog(Box::default()),
            Which::SlidingWindow(_) => Remembered::SlidingWindow(Box::default()),
            Which::SlidingCounter(_) => {
                Remembered::SlidingCounter(sliding_counter::State::default())
            }
            Which::Concurrency(_) => Remembered::Concurrency(Box::default()),
            Which::Penalty(_) => Remembered::Penalty(Box::default()),
        })
    }

    /// What the state says about an action at `now`. Every action but [`Action::Take`] fits.
    ///
    /// A state of another algorithm reads as untouched.
    pub fn read(&self, state: &State, now: Micros, action: &Action) -> Reading {
        arithmetic_with_state!(
            self,
            &state.0,
            (it, state) => read(it, state, now, action),
            self.read(&self.untouched(), now, action)
        )
    }

    /// Carries out an action that was read to fit at `now`; a cost of 0 takes nothing.
    ///
    /// A state from a clock that was more than a window ahead of `now` is repaired: what begins
    /// after `now` in it, such as a window, begins now, as it has been [read](Self::read). For an
    /// action that does not fit this is all that is done, and it makes the wait come true: without
    /// it, whoever is denied would be until the clock has caught up.
    ///
    /// Gives what the decision is to be made of: what was read before permits were taken, or what
    /// there is after any other action.
    pub fn commit(
        &self,
        state: &mut State,
        now: Micros,
        action: &Action,
        reading: Reading,
    ) -> Reading {
        arithmetic_with_state!(
            self,
            &mut state.0,
            (it, state) => commit(it, state, now, action, reading),
            {
                *state = self.untouched();
                self.commit(state, now, action, reading)
            }
        )
    }

    /// Decides the only check of a question, and carries it out if it fits.
    #[cfg(feature = "memory")]
    pub(crate) fn ask(&self, state: &mut State, now: Micros, action: &Action) -> Decision {
        arithmetic_with_state!(
            self,
            &mut state.0,
            (it, state) => it.ask(state, now, action),
            {
                *state = self.untouched();
                self.ask(state, now, action)
            }
        )
    }

    /// Turns the reading into the answer; `committed` says whether the action was carried out,
    /// which requires that every check of the request fits.
    pub(crate) fn decide(&self, reading: &Reading, action: &Action, committed: bool) -> Decision {
        arithmetic!(&self.0, it => it.decide(reading, action, committed))
    }

    /// What is read after this many permits were taken at the same instant, by what was read before
    /// them. Only for a take that fits at once both before and after them, and leaves permits.
    #[cfg(feature = "redis")]
    pub(crate) fn behind(&self, reading: &Reading, permits: u32) -> Reading {
        arithmetic!(&self.0, it => it.behind(reading, permits))
    }

    /// Whether waiting does not help, whatever the state.
    pub(crate) fn never_fits(&self, take: &Take) -> bool {
        arithmetic!(&self.0, it => decide::never_fits(it, take))
    }

    /// Whether it counts the denials of the check before it.
    pub(crate) fn is_penalty(&self) -> bool {
        const fn is_penalty<T: Arithmetic>(_: &T) -> bool {
            T::IS_PENALTY
        }
        arithmetic!(&self.0, it => is_penalty(it))
    }

    /// The permits given in each window, and the window's length; no length for an algorithm that
    /// knows no window.
    pub fn quota(&self) -> (u32, Micros) {
        arithmetic!(&self.0, it => it.quota())
    }

    /// The most permits that there ever are at once; a higher cost never fits.
    pub fn capacity(&self) -> u32 {
        arithmetic!(&self.0, it => it.capacity())
    }

    /// The name that the algorithm's file, its script and its place in stored keys bear.
    pub fn name(&self) -> &'static str {
        match self.0 {
            Which::Gcra(_) => "gcra",
            Which::TokenBucket(_) => "token_bucket",
            Which::LeakyBucket(_) => "leaky_bucket",
            Which::FixedWindow(_) => "fixed_window",
            Which::SlidingLog(_) => "sliding_log",
            Which::SlidingWindow(_) => "sliding_window",
            Which::SlidingCounter(_) => "sliding_counter",
            Which::Concurrency(_) => "concurrency",
            Which::Penalty(_) => "penalty",
        }
    }

    /// The same as a number.
    pub(crate) fn number(&self) -> u8 {
        match self.0 {
            Which::Gcra(_) => 0,
            Which::TokenBucket(_) => 1,
            Which::LeakyBucket(_) => 2,
            Which::FixedWindow(_) => 3,
            Which::SlidingLog(_) => 4,
            Which::SlidingWindow(_) => 5,
            Which::SlidingCounter(_) => 6,
            Which::Concurrency(_) => 7,
            Which::Penalty(_) => 8,
        }
    }

    /// Whether permits can be taken before they are there, so that a caller may wait for them.
    pub fn can_wait(&self) -> bool {
        const fn can_wait<T: Arithmetic>(_: &T) -> bool {
            T::CAN_WAIT
        }
        arithmetic!(&self.0, it => can_wait(it))
    }

    /// The arithmetic of an algorithm that counts in debt.
    #[inline]
    fn debt(&self) -> Option<&debt::Debt> {
        match &self.0 {
            Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt) => Some(debt),
            _ => None,
        }
    }

    /// Whether it remembers each request by itself.
    pub(crate) fn is_log(&self) -> bool {
        matches!(self.0, Which::SlidingLog(_))
    }

    /// Whether its windows begin at multiples of their length by the wall clock.
    #[cfg(feature = "memory")]
    #[inline]
    pub(crate) fn is_aligned(&self) -> bool {
        matches!(&self.0, Which::FixedWindow(window) if window.is_aligned())
    }

    /// The same for a store whose clock shows `now` when the wall clock shows `wall`.
    #[cfg(feature = "memory")]
    pub(crate) fn aligned_by(&self, wall: Micros, now: Micros) -> Self {
        match self.0 {
            Which::FixedWindow(window) => Self(Which::FixedWindow(window.aligned_by(wall, now))),
            _ => *self,
        }
    }

    /// Whether it counts in debt: time that is owed.
    #[cfg(feature = "redis")]
    pub(crate) fn is_debt(&self) -> bool {
        self.debt().is_some()
    }

    /// Whether it holds up what it allows even if the caller did not ask to wait.
    pub(crate) fn queues(&self) -> bool {
        arithmetic!(&self.0, it => it.queues())
    }

    /// Whether this take is held up rather than denied.
    #[inline]
    pub(crate) fn may_hold_up(&self, action: &Action) -> bool {
        match action {
            Action::Take(take) => take.patience != Patience::None || self.queues(),
            _ => false,
        }
    }

    /// The same action for a caller that does not wait.
    pub(crate) fn without_waiting(&self, action: Action) -> Action {
        match action {
            Action::Take(take) if self.may_hold_up(&action) => Action::Take(Take {
                patience: take.patience.without_waiting(),
                ..take
            }),
            _ => action,
        }
    }

    /// How long a lease lives unless it is renewed; `None` for an algorithm that has no leases.
    pub fn lease(&self) -> Option<Micros> {
        match &self.0 {
            Which::Concurrency(concurrency) => Some(concurrency.lease()),
            _ => None,
        }
    }

    /// The name of an action in scripts.
    #[cfg(feature = "redis")]
    pub(crate) fn verb(&self, action: &Action) -> &'static str {
        match action {
            Action::Take(_) => match action.patience() {
                Patience::UntilPaid(_) if self.can_wait() => "borrow",
                _ => "take",
            },
            Action::Charge(_) => "charge",
            Action::Credit { .. } | Action::Refund { .. } => "credit",
            Action::Cancel { .. } | Action::Withdraw { .. } if !self.can_wait() => "credit",
            Action::Cancel { .. } => "cancel",
            Action::Withdraw { .. } => "withdraw",
            Action::Reset => "reset",
            Action::Renew(_) => "renew",
            Action::Release(_) => "release",
        }
    }

    /// The arguments of the script that carries out an action.
    #[cfg_attr(
        not(any(feature = "redis", test)),
        expect(dead_code, reason = "scripts take them")
    )]
    pub(crate) fn arguments(&self, action: &Action) -> Arguments {
        arithmetic!(&self.0, it => it.arguments(action))
    }
}

#[cfg(test)]
mod tests;
