//! `Algorithm`: any of the algorithms, and the dispatch of its methods. `State`: the state of one key.

use super::action::{Acquire, Action, Wait};
use super::arithmetic::{Arithmetic, commit, never_fits, read};
use super::reading::{Arguments, Reading, Share};
use super::{
    concurrency, debt, fixed_window, penalty, sliding_counter, sliding_log, sliding_window, window,
};
use crate::decision::{Decision, Receipt};
use crate::time::Micros;

/// Calls a method of the algorithm's [`Arithmetic`].
macro_rules! arithmetic {
    ($which:expr, $it:ident => $call:expr) => {
        match $which {
            Which::Gcra($it) | Which::TokenBucket($it) | Which::LeakyBucket($it) => $call,
            Which::FixedWindow($it) => $call,
            Which::SlidingLog($it) => $call,
            Which::SlidingWindow($it) => $call,
            Which::SlidingCounter($it) => $call,
            Which::Concurrency($it) => $call,
            Which::Penalty($it) => $call,
        }
    };
}

/// The same with the algorithm's own kind of state; `$other` if the state is of another algorithm.
macro_rules! arithmetic_with_state {
    ($algorithm:expr, $remembered:expr, ($it:ident, $state:ident) => $call:expr, $other:expr) => {
        match (&$algorithm.0, $remembered) {
            (
                Which::Gcra($it) | Which::TokenBucket($it) | Which::LeakyBucket($it),
                Remembered::Debt($state),
            ) => $call,
            (Which::FixedWindow($it), Remembered::FixedWindow($state)) => $call,
            (Which::SlidingLog($it), Remembered::SlidingLog($state)) => $call,
            (Which::SlidingWindow($it), Remembered::SlidingWindow($state)) => $call,
            (Which::SlidingCounter($it), Remembered::SlidingCounter($state)) => $call,
            (Which::Concurrency($it), Remembered::Concurrency($state)) => $call,
            (Which::Penalty($it), Remembered::Penalty($state)) => $call,
            _ => $other,
        }
    };
}

pub(super) use arithmetic;

/// The arithmetic of a valid limit. Made from a [`Limit`](crate::Limit) or a
/// [`Penalty`](crate::Penalty) by `TryFrom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm(pub(super) Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
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

impl Algorithm {
    /// The state of a key that was never used.
    pub fn untouched(&self) -> State {
        State(match self.0 {
            Which::Gcra(_) | Which::TokenBucket(_) | Which::LeakyBucket(_) => {
                Remembered::Debt(debt::State::default())
            }
            Which::FixedWindow(_) => Remembered::FixedWindow(window::State::default()),
            Which::SlidingLog(_) => Remembered::SlidingLog(Box::default()),
            Which::SlidingWindow(_) => Remembered::SlidingWindow(Box::default()),
            Which::SlidingCounter(_) => {
                Remembered::SlidingCounter(sliding_counter::State::default())
            }
            Which::Concurrency(_) => Remembered::Concurrency(Box::default()),
            Which::Penalty(_) => Remembered::Penalty(Box::default()),
        })
    }

    /// Reads whether an action fits at `now`. Every action but [`Action::Acquire`] fits.
    ///
    /// A state of another algorithm counts as untouched.
    pub fn read(&self, state: &State, now: Micros, action: &Action) -> Reading {
        arithmetic_with_state!(
            self,
            &state.0,
            (it, state) => read(it, state, now, action),
            self.read(&self.untouched(), now, action)
        )
    }

    /// Carries out an action whose [reading](Self::read) at `now` fits. A cost of 0 acquires nothing.
    ///
    /// It also repairs a state from a clock that was more than a window ahead of `now`: what begins
    /// after `now` in it, such as a window, begins now, as `read` has assumed. For an action that does
    /// not fit, the repair is all that it does. Without the repair, the wait that `read` computed would
    /// be too short.
    ///
    /// Returns the reading to decide by: that before permits were acquired, or that after any other
    /// action.
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

    /// The receipt after `actual` permits are charged instead of `charged`.
    pub(crate) fn settled(&self, receipt: &Receipt, charged: u64, actual: u64) -> Receipt {
        match &self.0 {
            Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt) => {
                debt.settled(receipt, charged, actual)
            }
            _ => *receipt,
        }
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

    /// The reading after this many permits were acquired at the same instant, computed from the
    /// reading before them. Only for an acquire that fits at once both before and after them, and
    /// leaves permits.
    #[cfg(feature = "redis")]
    pub(crate) fn behind(&self, reading: &Reading, permits: u64) -> Reading {
        arithmetic!(&self.0, it => it.behind(reading, permits))
    }

    /// How many permits are left of what was read.
    pub(super) fn remaining(&self, reading: &Reading) -> u64 {
        arithmetic!(&self.0, it => it.left(reading, 0).remaining)
    }

    /// Whether the cost does not fit in any state.
    pub(crate) fn never_fits(&self, acquire: &Acquire) -> bool {
        arithmetic!(&self.0, it => never_fits(it, acquire))
    }

    /// Whether it counts the denials of the check before it.
    pub(crate) fn is_penalty(&self) -> bool {
        const fn is_penalty<T: Arithmetic>(_: &T) -> bool {
            T::IS_PENALTY
        }
        arithmetic!(&self.0, it => is_penalty(it))
    }

    /// The permits of each window, and the window's length, which is zero for an algorithm without
    /// windows.
    pub fn quota(&self) -> (u64, Micros) {
        arithmetic!(&self.0, it => it.quota())
    }

    /// The most permits that can be acquired at once. A higher cost never fits.
    pub fn capacity(&self) -> u64 {
        arithmetic!(&self.0, it => it.capacity())
    }

    /// The name of the algorithm, which its file, its script and stored keys contain.
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

    /// Whether permits can be acquired ahead of time, so that the caller waits for them.
    pub fn can_wait(&self) -> bool {
        const fn can_wait<T: Arithmetic>(_: &T) -> bool {
            T::CAN_WAIT
        }
        arithmetic!(&self.0, it => can_wait(it))
    }

    /// The arithmetic of an algorithm that counts in debt.
    #[inline]
    pub(super) fn debt(&self) -> Option<&debt::Debt> {
        match &self.0 {
            Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt) => Some(debt),
            _ => None,
        }
    }

    /// Whether it remembers each request by itself.
    pub(crate) fn is_log(&self) -> bool {
        matches!(self.0, Which::SlidingLog(_))
    }

    /// Whether its windows begin where the wall clock says.
    #[cfg(feature = "memory")]
    #[inline]
    pub(crate) fn is_aligned(&self) -> bool {
        matches!(&self.0, Which::FixedWindow(window) if window.is_aligned())
    }

    /// Whether a calendar says where its windows begin.
    #[cfg(feature = "redis")]
    #[inline]
    pub(crate) fn is_by_calendar(&self) -> bool {
        matches!(&self.0, Which::FixedWindow(window) if window.is_by_calendar())
    }

    /// The same for a store whose clock shows `now` when the wall clock shows `wall`.
    #[cfg(any(feature = "memory", feature = "redis"))]
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

    /// Whether it delays admitted requests even if the caller did not ask to wait.
    pub(crate) fn queues(&self) -> bool {
        arithmetic!(&self.0, it => it.queues())
    }

    /// Whether this acquire may be delayed instead of denied.
    #[inline]
    pub(crate) fn may_hold_up(&self, action: &Action) -> bool {
        match action {
            Action::Acquire(acquire) => acquire.wait != Wait::None || self.queues(),
            _ => false,
        }
    }

    /// How a caller acquires that is not to be held up, not even by a queue.
    pub(crate) fn without_delay(&self) -> Wait {
        match self.queues() {
            true => Wait::None.without_waiting(),
            false => Wait::None,
        }
    }

    /// The same action for a caller that does not wait.
    pub(crate) fn without_waiting(&self, action: Action) -> Action {
        match action {
            Action::Acquire(acquire) if self.may_hold_up(&action) => Action::Acquire(Acquire {
                wait: acquire.wait.without_waiting(),
                ..acquire
            }),
            _ => action,
        }
    }

    /// How long a lease lives without renewal; `None` for an algorithm without leases.
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
            Action::Acquire(_) => match action.wait() {
                Wait::Burst(_) if self.can_wait() => "borrow",
                _ => "acquire",
            },
            Action::Charge(_) => "charge",
            // A charge of nothing.
            Action::Hold { .. } if !self.can_wait() => "charge",
            Action::Hold { .. } => "hold",
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

impl Algorithm {
    /// The same algorithm with this share of its limit, and of its burst or capacity. Each is rounded
    /// down, but at least 1. Times do not change, nor does a [`Penalty`](crate::Penalty).
    ///
    /// ```
    /// use tower_throttle::store::Algorithm;
    /// use tower_throttle::{Limit, MINUTE};
    ///
    /// let whole = Algorithm::try_from(&Limit::gcra(100, MINUTE).burst(10))?;
    /// let quarter = whole.scaled(0.25);
    /// assert_eq!(quarter.quota(), (25, MINUTE.into()));
    /// assert_eq!(quarter.capacity(), 2);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    #[must_use]
    pub fn scaled(&self, share: f64) -> Self {
        let mut scaled = *self;
        arithmetic!(&mut scaled.0, it => it.scale(Share(share)));
        scaled
    }

    /// This share of the capacity, rounded down, but at least 1.
    pub(crate) fn share_of_capacity(&self, share: f64) -> u64 {
        Share(share).of(self.capacity())
    }
}

/// The state of one key. [`Algorithm::untouched`](super::Algorithm::untouched) makes the first one.
#[derive(Clone, Debug)]
pub struct State(pub(super) Remembered);

#[derive(Clone, Debug)]
pub(super) enum Remembered {
    Debt(debt::State),
    FixedWindow(window::State),
    SlidingLog(Box<sliding_log::State>),
    SlidingWindow(Box<sliding_window::State>),
    SlidingCounter(sliding_counter::State),
    Concurrency(Box<concurrency::State>),
    Penalty(Box<penalty::State>),
}

impl State {
    /// The instant from which the state equals the untouched one and may be forgotten.
    pub fn expires_at(&self) -> Micros {
        match &self.0 {
            Remembered::Debt(state) => debt::Debt::expires_at(state),
            Remembered::FixedWindow(state) => fixed_window::FixedWindow::expires_at(state),
            Remembered::SlidingLog(state) => sliding_log::SlidingLog::expires_at(state),
            Remembered::SlidingWindow(state) => sliding_window::SlidingWindow::expires_at(state),
            Remembered::SlidingCounter(state) => sliding_counter::SlidingCounter::expires_at(state),
            Remembered::Concurrency(state) => concurrency::Concurrency::expires_at(state),
            Remembered::Penalty(state) => penalty::PenaltyBox::expires_at(state),
        }
    }
}
