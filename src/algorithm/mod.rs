//! The algorithms as pure arithmetic: the specification that `lua/` mirrors, and what the memory
//! store runs.
//!
//! Every algorithm answers in two steps, here as in its script, so that several checks of one
//! request can be decided all or nothing: [`read`](Algorithm::read) tells whether the action fits
//! the state and writes nothing; [`commit`](Algorithm::commit) carries it out, and is called only
//! for those checks that [`committed`] names. [`decide()`] turns what was read, by either half of
//! the crate, into the [`Decisions`](crate::Decisions).

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::ConfigError;
use crate::limit::{Kind, Limit};
use crate::time::Micros;

mod action;
mod concurrency;
mod debt;
mod decide;
mod fixed_window;
mod gcra;
mod known;
mod late;
mod leaky_bucket;
mod penalty;
mod plain;
mod question;
mod share;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod span;
mod token_bucket;

pub use self::action::{Action, LeaseId, Patience, Take};
pub(crate) use self::known::Known;
pub use self::penalty::Penalty;
pub(crate) use self::plain::PlainTake;
#[cfg(feature = "memory")]
pub(crate) use self::question::all_enforced_fit;
pub use self::question::{Ask, committed, decide};
#[cfg(feature = "redis")]
pub(crate) use self::question::{decide_alone, decide_denied};
use self::share::Share;

/// A limit that was found sound, ready to judge. Made from a [`Limit`] or a [`Penalty`] by
/// `TryFrom`.
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

/// What is remembered of one key. [`Algorithm::untouched`] makes the first.
#[derive(Clone, Debug)]
pub struct State(Remembered);

#[derive(Clone, Debug)]
enum Remembered {
    Debt(debt::State),
    FixedWindow(fixed_window::State),
    SlidingLog(Box<sliding_log::State>),
    SlidingWindow(Box<sliding_window::State>),
    SlidingCounter(sliding_counter::State),
    Concurrency(Box<concurrency::State>),
    Penalty(Box<penalty::State>),
}

/// What a state says about an action at an instant: the four integers that a script replies for
/// each check, and the instant, which it replies for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether the action fits.
    pub fits: bool,
    /// How long until it does, when it does not; how long to hold it up, when it does. Of a
    /// [`Penalty`], the rest of the ban either way.
    pub wait: Micros,
    /// Two integers that tell the state as far as a decision needs it, before permits are taken
    /// and after they are given back; what they are is said in the algorithm's script.
    pub level: [u64; 2],
    /// The instant of the reading.
    pub at: Micros,
}

/// The arguments of one check in a script, behind the algorithm's name and the action's verb: see
/// the script's header. Those that an algorithm does not have are zero and not sent.
pub type Arguments = [u64; MOST_ARGUMENTS];

/// The most arguments that a script takes for one check.
pub const MOST_ARGUMENTS: usize = 8;

/// What one algorithm's file implements; the private twin of a script.
trait Twin: Sized {
    type State: Default;
    /// Whether permits can be taken before they are there, so that a caller may wait for them.
    const CAN_WAIT: bool = false;
    /// Whether it counts denials, and not permits.
    const IS_PENALTY: bool = false;

    /// What the state says about taking permits. A cost of 0 fits whatever the state.
    fn read(&self, state: &Self::State, now: Micros, take: &Take) -> Reading;
    /// Decides the only check of a question, and carries it out when it fits.
    #[cfg(feature = "memory")]
    fn ask(&self, state: &mut Self::State, now: Micros, action: &Action) -> Decision {
        decide::ask(self, state, now, action)
    }
    /// Turns what was read into the answer; `committed` tells whether the action was carried out.
    fn decide(&self, reading: &Reading, action: &Action, committed: bool) -> Decision {
        decide::decide(self, reading, action, committed)
    }
    /// Carries out an action.
    #[inline]
    fn apply(&self, state: &mut Self::State, now: Micros, action: &Action) {
        match action {
            Action::Take(Take { cost: 0, .. }) | Action::Charge(0) => {}
            Action::Take(take) => self.take(state, now, take),
            Action::Charge(permits) => self.charge(state, now, *permits),
            Action::Reset => *state = Self::State::default(),
            action => self.adjust(state, now, action),
        }
    }
    /// Takes permits, whether they fit or not.
    fn charge(&self, state: &mut Self::State, now: Micros, permits: u32);
    /// Takes permits that were read to fit.
    fn take(&self, state: &mut Self::State, now: Micros, take: &Take) {
        self.charge(state, now, take.cost);
    }
    /// Carries out an action that neither takes permits nor asks; one that the algorithm does not
    /// know does nothing.
    fn adjust(&self, state: &mut Self::State, now: Micros, action: &Action);
    fn expires_at(state: &Self::State) -> Micros;
    fn capacity(&self) -> u32;
    /// Whether it holds up what it allows, though nobody asked to wait.
    fn queues(&self) -> bool {
        false
    }
    /// The same with a share of its permits.
    fn scaled(&self, share: Share) -> Self;
    fn quota(&self) -> (u32, Micros);
    /// What is left once `charged` permits were taken from what was read.
    fn left(&self, reading: &Reading, charged: u32) -> Left;
    fn arguments(&self, action: &Action) -> Arguments;
    /// The same reading behind so many permits that were taken at its instant.
    #[cfg(feature = "redis")]
    fn behind(&self, reading: &Reading, permits: u32) -> Reading {
        let [used, back_in] = reading.level;
        Reading {
            level: [used.saturating_add(permits.into()), back_in],
            ..*reading
        }
    }
    /// The level that was read, by the decision that was made of it and has taken nothing.
    fn level(&self, decision: &Decision) -> [u64; 2] {
        let (limit, _) = self.quota();
        let used = limit.saturating_sub(decision.remaining);
        [used.into(), decision.reset_after.get()]
    }
    /// What the key would be read as for `take` when so much time has gone by since this reading
    /// for a cost, and nobody has touched it. `None` when the reading does not tell.
    fn later(&self, reading: &Reading, cost: u32, elapsed: Micros, take: &Take) -> Option<Reading> {
        // What comes back when is known of the permits that were asked for, and of no others.
        if take.cost != cost || (!reading.fits && reading.wait <= elapsed) {
            return None;
        }
        let [used, back_in] = reading.level;
        Some(Reading {
            fits: reading.fits,
            wait: reading.wait.saturating_sub(elapsed),
            level: [used, back_in.saturating_sub(elapsed.get())],
            at: reading.at.saturating_add(elapsed),
        })
    }
}

/// What is left of a key's permits.
struct Left {
    remaining: u32,
    /// How long until all are back.
    reset_after: Micros,
    /// How long until there are more, at the latest.
    renews_after: Micros,
    /// Whether all are back then.
    renews_whole: bool,
    /// What a reservation that took the last of them is known by; see
    /// [`Receipt`](crate::decision::Receipt).
    mark: [u64; 2],
}

impl Left {
    /// Where the state does not tell when the next one comes back: all of them is never too early.
    fn all_after(remaining: u32, reset_after: Micros) -> Self {
        Self {
            remaining,
            reset_after,
            renews_after: reset_after,
            renews_whole: false,
            mark: [0; 2],
        }
    }
}

/// Calls a method of the [`Twin`] that this algorithm is.
macro_rules! twin {
    ($algorithm:expr, $twin:ident => $call:expr) => {
        match &$algorithm.0 {
            Which::Gcra($twin) | Which::TokenBucket($twin) | Which::LeakyBucket($twin) => $call,
            Which::FixedWindow($twin) => $call,
            Which::SlidingLog($twin) => $call,
            Which::SlidingWindow($twin) => $call,
            Which::SlidingCounter($twin) => $call,
            Which::Concurrency($twin) => $call,
            Which::Penalty($twin) => $call,
        }
    };
}
use twin;

/// Calls a method of the [`Twin`] that this algorithm is with its own kind of state; `$other` when
/// the state is of another algorithm.
macro_rules! twin_with_state {
    ($algorithm:expr, $remembered:expr, ($twin:ident, $state:ident) => $call:expr, $other:expr) => {
        match (&$algorithm.0, $remembered) {
            (
                Which::Gcra($twin) | Which::TokenBucket($twin) | Which::LeakyBucket($twin),
                Remembered::Debt($state),
            ) => $call,
            (Which::FixedWindow($twin), Remembered::FixedWindow($state)) => $call,
            (Which::SlidingLog($twin), Remembered::SlidingLog($state)) => $call,
            (Which::SlidingWindow($twin), Remembered::SlidingWindow($state)) => $call,
            (Which::SlidingCounter($twin), Remembered::SlidingCounter($state)) => $call,
            (Which::Concurrency($twin), Remembered::Concurrency($state)) => $call,
            (Which::Penalty($twin), Remembered::Penalty($state)) => $call,
            _ => $other,
        }
    };
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
        twin_with_state!(
            self,
            &state.0,
            (twin, state) => read(twin, state, now, action),
            self.read(&self.untouched(), now, action)
        )
    }

    /// Carries out an action that was read to fit at `now`; a cost of 0 changes nothing.
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
        twin_with_state!(
            self,
            &mut state.0,
            (twin, state) => commit(twin, state, now, action, reading),
            {
                *state = self.untouched();
                self.commit(state, now, action, reading)
            }
        )
    }

    /// The only check of a question: decides it, and carries it out when it fits.
    #[cfg(feature = "memory")]
    pub(crate) fn ask(&self, state: &mut State, now: Micros, action: &Action) -> Decision {
        twin_with_state!(
            self,
            &mut state.0,
            (twin, state) => twin.ask(state, now, action),
            {
                *state = self.untouched();
                self.ask(state, now, action)
            }
        )
    }

    /// Turns what was read into the answer; `committed` tells whether the action was carried out,
    /// which it is only when every check of the request fits.
    pub(crate) fn decide(&self, reading: &Reading, action: &Action, committed: bool) -> Decision {
        twin!(self, twin => twin.decide(reading, action, committed))
    }

    /// What is read behind so many permits that were taken at the same instant, of a take that fits at once
    /// then as it did before, and is not the first.
    #[cfg(feature = "redis")]
    pub(crate) fn behind(&self, reading: &Reading, permits: u32) -> Reading {
        twin!(self, twin => twin.behind(reading, permits))
    }

    /// Whether waiting does not help, whatever the state.
    pub(crate) fn never_fits(&self, take: &Take) -> bool {
        twin!(self, twin => decide::never_fits(twin, take))
    }

    /// Whether it counts the denials of the check before it.
    pub(crate) fn is_penalty(&self) -> bool {
        matches!(self.0, Which::Penalty(_))
    }

    /// The permits given in each window, and the window's length; no length for an algorithm that
    /// knows no window.
    pub fn quota(&self) -> (u32, Micros) {
        twin!(self, twin => twin.quota())
    }

    /// The most permits that there ever are at once; a higher cost never fits.
    pub fn capacity(&self) -> u32 {
        twin!(self, twin => twin.capacity())
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
    #[cfg(any(feature = "memory", feature = "redis"))]
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
        matches!(
            self.0,
            Which::Gcra(_) | Which::TokenBucket(_) | Which::LeakyBucket(_)
        )
    }

    /// Whether its state is a text, which a store may keep beside others in one place.
    pub fn packs(&self) -> bool {
        !matches!(self.0, Which::SlidingLog(_) | Which::Concurrency(_))
    }

    /// Whether it holds up what it allows, though nobody asked to wait.
    pub(crate) fn delays(&self) -> bool {
        matches!(&self.0, Which::LeakyBucket(bucket) if bucket.queues())
    }

    /// Whether who asks this would rather be held up than denied.
    #[inline]
    pub(crate) fn may_hold_up(&self, action: &Action) -> bool {
        match action {
            Action::Take(take) => take.patience != Patience::None || self.delays(),
            _ => false,
        }
    }

    /// The same question of one who is not going to wait.
    pub(crate) fn without_waiting(&self, action: Action) -> Action {
        match action {
            Action::Take(take) if self.may_hold_up(&action) => Action::Take(Take {
                patience: take.patience.without_waiting(),
                ..take
            }),
            _ => action,
        }
    }

    /// How long a lease lives unless it is renewed; `None` of an algorithm that has no leases.
    pub fn lease(&self) -> Option<Micros> {
        match &self.0 {
            Which::Concurrency(concurrency) => Some(concurrency.lease()),
            _ => None,
        }
    }

    /// The name that scripts know an action by.
    #[cfg(feature = "redis")]
    pub(crate) fn verb(&self, action: &Action) -> &'static str {
        match action {
            Action::Take(_) => match action.patience() {
                Patience::UntilPaid(_) if self.can_wait() => "borrow",
                _ => "take",
            },
            Action::Charge(_) => "charge",
            Action::Credit { .. } | Action::Refund { .. } => "credit",
            Action::Cancel { .. } if !self.can_wait() => "credit",
            Action::Cancel { .. } => "cancel",
            Action::Reset => "reset",
            Action::Renew(_) => "renew",
            Action::Release(_) => "release",
        }
    }

    /// The arguments of the script that carries out an action.
    pub fn arguments(&self, action: &Action) -> Arguments {
        twin!(self, twin => twin.arguments(action))
    }
}

#[inline]
fn read<T: Twin>(twin: &T, state: &T::State, now: Micros, action: &Action) -> Reading {
    match action {
        Action::Take(take) => twin.read(state, now, take),
        _ => twin.read(state, now, &Take::look()),
    }
}

#[inline]
fn commit<T: Twin>(
    twin: &T,
    state: &mut T::State,
    now: Micros,
    action: &Action,
    reading: Reading,
) -> Reading {
    twin.apply(state, now, action);
    match action {
        Action::Take(_) | Action::Charge(_) => reading,
        _ => read(twin, state, now, action),
    }
}

impl State {
    /// From this instant on the state is equal to the untouched one and may be forgotten.
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

impl Algorithm {
    /// One for each rate of a limit, in their order.
    ///
    /// # Errors
    ///
    /// As for one rate; or says why these make no sense together.
    pub(crate) fn of_each_rate(limit: &Limit) -> Result<SmallVec<[Self; 1]>, ConfigError> {
        limit.refuse_rates_together()?;
        let each = limit.rates();
        each.map(|rate| Self::try_from(&rate)).collect()
    }
}

impl TryFrom<&Limit> for Algorithm {
    type Error = ConfigError;

    /// Of a limit of one rate; [`Limit::rates`] takes others apart.
    ///
    /// # Errors
    ///
    /// Names the field of the limit that is out of range, or that another algorithm has.
    fn try_from(limit: &Limit) -> Result<Self, ConfigError> {
        let sound = limit.sound()?;
        Ok(Self(match sound.kind {
            Kind::Gcra => Which::Gcra(gcra::new(&sound)),
            Kind::TokenBucket => Which::TokenBucket(token_bucket::new(&sound)),
            Kind::LeakyBucket => Which::LeakyBucket(leaky_bucket::new(&sound)),
            Kind::FixedWindow => Which::FixedWindow(fixed_window::FixedWindow::new(&sound)),
            Kind::SlidingLog => Which::SlidingLog(sliding_log::SlidingLog::new(&sound)),
            Kind::SlidingWindow => Which::SlidingWindow(sliding_window::SlidingWindow::new(&sound)),
            Kind::SlidingCounter => {
                Which::SlidingCounter(sliding_counter::SlidingCounter::new(&sound))
            }
            Kind::Concurrency => Which::Concurrency(concurrency::Concurrency::new(&sound)),
        }))
    }
}

impl TryFrom<&Penalty> for Algorithm {
    type Error = ConfigError;

    /// # Errors
    ///
    /// Names the field of the penalty that is out of range.
    fn try_from(penalty: &Penalty) -> Result<Self, ConfigError> {
        penalty::PenaltyBox::new(penalty).map(|penalty| Self(Which::Penalty(penalty)))
    }
}

#[cfg(test)]
mod tests;
