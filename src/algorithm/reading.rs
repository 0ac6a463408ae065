//! `Reading`: what a state says, and what a script is told.

use crate::time::Micros;

/// What a state says about an action at an instant: the five integers that a script replies for
/// each check, and the instant, which it replies for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Whether the action fits.
    pub fits: bool,
    /// How long until it does, when it does not; how long to hold it up, when it does. Of a
    /// [`Penalty`](crate::Penalty), the rest of the ban either way.
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
