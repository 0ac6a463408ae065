//! The algorithms as pure arithmetic: the specification that `lua/` mirrors, and what the memory
//! store runs.
//!
//! Every algorithm answers in two steps, here as in its script, so that several checks of one
//! request can be decided all or nothing: [`read`](Algorithm::read) tells whether the cost fits
//! the state and writes nothing; [`charge`](Algorithm::charge) takes the permits, and is called
//! only when *all* checks of the request fit. [`decide`](Algorithm::decide) turns what was read,
//! by either half of the crate, into the [`Decision`].

use crate::decision::{Decision, Outcome};
use crate::error::ConfigError;
use crate::limit::{Kind, Limit};
use crate::time::Micros;

mod fixed_window;
mod gcra;
mod sliding_counter;
mod sliding_log;
mod span;

/// A limit that was found sound, ready to judge. Made from a [`Limit`] by `TryFrom`.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm(Which);

#[derive(Clone, Copy, Debug)]
enum Which {
    Gcra(gcra::Gcra),
    FixedWindow(fixed_window::FixedWindow),
    SlidingLog(sliding_log::SlidingLog),
    SlidingCounter(sliding_counter::SlidingCounter),
}

/// What is remembered of one key. [`Algorithm::untouched`] makes the first.
#[derive(Clone, Debug)]
pub struct State(Remembered);

#[derive(Clone, Debug)]
enum Remembered {
    Gcra(gcra::State),
    FixedWindow(fixed_window::State),
    SlidingLog(Box<sliding_log::State>),
    SlidingCounter(sliding_counter::State),
}

/// What a state says about a cost at an instant, before anything is charged: the four integers
/// that a script replies for each check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether the cost fits.
    pub fits: bool,
    /// How long until it fits; zero when it does.
    pub wait: Micros,
    /// Two integers that tell the state as far as a decision needs it; what they are is said in
    /// the algorithm's script.
    pub level: [u64; 2],
}

/// The arguments of one check in a script, behind the algorithm's name: see the script's header.
/// Those that an algorithm does not have are zero and not sent.
pub type Arguments = [u64; MOST_ARGUMENTS];

/// The most arguments that a script takes for one check.
pub const MOST_ARGUMENTS: usize = 5;

/// What one algorithm's file implements; the private twin of a script.
trait Twin {
    type State: Default;

    fn read(&self, state: &Self::State, now: Micros, cost: u32) -> Reading;
    fn charge(&self, state: &mut Self::State, now: Micros, cost: u32);
    fn expires_at(state: &Self::State) -> Micros;
    fn capacity(&self) -> u32;
    fn quota(&self) -> (u32, Micros);
    /// `(remaining, reset_after)` once `charged` permits were taken from what was read.
    fn left(&self, reading: &Reading, charged: u32) -> (u32, Micros);
    /// How long until there are more permits, at the latest, once `charged` were taken.
    fn renews_after(&self, reading: &Reading, charged: u32) -> Micros {
        // A state does not always tell when the next one comes; all of them is never too early.
        self.left(reading, charged).1
    }
    /// Whether all permits are back then.
    fn renews_whole(&self) -> bool {
        false
    }
    fn arguments(&self, cost: u32) -> Arguments;
}

/// Calls a method of the [`Twin`] that this algorithm is.
macro_rules! twin {
    ($algorithm:expr, $twin:ident => $call:expr) => {
        match &$algorithm.0 {
            Which::Gcra($twin) => $call,
            Which::FixedWindow($twin) => $call,
            Which::SlidingLog($twin) => $call,
            Which::SlidingCounter($twin) => $call,
        }
    };
}

impl Algorithm {
    /// The state of a key that was never used.
    pub fn untouched(&self) -> State {
        State(match self.0 {
            Which::Gcra(_) => Remembered::Gcra(gcra::State::default()),
            Which::FixedWindow(_) => Remembered::FixedWindow(fixed_window::State::default()),
            Which::SlidingLog(_) => Remembered::SlidingLog(Box::default()),
            Which::SlidingCounter(_) => {
                Remembered::SlidingCounter(sliding_counter::State::default())
            }
        })
    }

    /// Whether `cost` permits fit at `now`. A cost of 0 always fits: it only looks.
    ///
    /// A state of another algorithm reads as untouched.
    pub fn read(&self, state: &State, now: Micros, cost: u32) -> Reading {
        match (&self.0, &state.0) {
            (Which::Gcra(twin), Remembered::Gcra(state)) => twin.read(state, now, cost),
            (Which::FixedWindow(twin), Remembered::FixedWindow(state)) => {
                twin.read(state, now, cost)
            }
            (Which::SlidingLog(twin), Remembered::SlidingLog(state)) => twin.read(state, now, cost),
            (Which::SlidingCounter(twin), Remembered::SlidingCounter(state)) => {
                twin.read(state, now, cost)
            }
            _ => self.read(&self.untouched(), now, cost),
        }
    }

    /// Takes `cost` permits that were read to fit at `now`; a cost of 0 changes nothing.
    pub fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        if cost == 0 {
            return;
        }
        match (&self.0, &mut state.0) {
            (Which::Gcra(twin), Remembered::Gcra(state)) => twin.charge(state, now, cost),
            (Which::FixedWindow(twin), Remembered::FixedWindow(state)) => {
                twin.charge(state, now, cost);
            }
            (Which::SlidingLog(twin), Remembered::SlidingLog(state)) => {
                twin.charge(state, now, cost);
            }
            (Which::SlidingCounter(twin), Remembered::SlidingCounter(state)) => {
                twin.charge(state, now, cost);
            }
            _ => {
                *state = self.untouched();
                self.charge(state, now, cost);
            }
        }
    }

    /// Turns what was read into the answer; `charged` tells whether the permits were taken, which
    /// they are only when every check of the request fits.
    pub fn decide(&self, reading: &Reading, cost: u32, charged: bool) -> Decision {
        let outcome = if reading.fits {
            Outcome::Allowed
        } else if cost > self.capacity() {
            Outcome::NeverFits
        } else {
            Outcome::Denied
        };
        let retry_after = match outcome {
            Outcome::Denied => reading.wait,
            _ => Micros::ZERO,
        };
        let taken = if charged { cost } else { 0 };
        let (remaining, reset_after) = twin!(self, twin => twin.left(reading, taken));
        let mut renews_after = twin!(self, twin => twin.renews_after(reading, taken));
        if outcome == Outcome::Denied {
            // Whatever fits after this wait, a single permit does.
            renews_after = renews_after.min(retry_after);
        }
        let (limit, window) = self.quota();
        Decision {
            outcome,
            limit,
            window,
            remaining,
            retry_after,
            reset_after,
            renews_after,
            renews_whole: twin!(self, twin => twin.renews_whole()),
        }
    }

    /// The permits given in each window, and the window's length.
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
            Which::FixedWindow(_) => "fixed_window",
            Which::SlidingLog(_) => "sliding_log",
            Which::SlidingCounter(_) => "sliding_counter",
        }
    }

    /// The arguments of the script that ask for `cost` permits.
    pub fn arguments(&self, cost: u32) -> Arguments {
        twin!(self, twin => twin.arguments(cost))
    }
}

impl State {
    /// From this instant on the state is equal to the untouched one and may be forgotten.
    pub fn expires_at(&self) -> Micros {
        match &self.0 {
            Remembered::Gcra(state) => gcra::Gcra::expires_at(state),
            Remembered::FixedWindow(state) => fixed_window::FixedWindow::expires_at(state),
            Remembered::SlidingLog(state) => sliding_log::SlidingLog::expires_at(state),
            Remembered::SlidingCounter(state) => sliding_counter::SlidingCounter::expires_at(state),
        }
    }
}

impl TryFrom<&Limit> for Algorithm {
    type Error = ConfigError;

    /// # Errors
    ///
    /// Names the field of the limit that is out of range, or that another algorithm has.
    fn try_from(limit: &Limit) -> Result<Self, ConfigError> {
        let sound = limit.sound()?;
        Ok(Self(match sound.kind {
            Kind::Gcra => Which::Gcra(gcra::Gcra::new(&sound)),
            Kind::FixedWindow => Which::FixedWindow(fixed_window::FixedWindow::new(&sound)),
            Kind::SlidingLog => Which::SlidingLog(sliding_log::SlidingLog::new(&sound)),
            Kind::SlidingCounter => {
                Which::SlidingCounter(sliding_counter::SlidingCounter::new(&sound))
            }
        }))
    }
}

#[cfg(test)]
mod tests;
