//! `LaterVerdict`: what a decision that has taken nothing tells about its key from then on.

use super::action::{Acquire, Action};
use super::arithmetic::Arithmetic as _;
use super::dispatch::{Algorithm, Which, arithmetic};
use super::reading::Reading;
use crate::decision::{Decision, Outcome};
use crate::time::Micros;

/// The wait of a cost that never fits: it outlasts every trip to the store.
const NEVER: Micros = Micros::new(u64::MAX);

/// What a decision tells about a key until the key is changed: enough to decide again later what
/// comes back with time alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaterVerdict {
    algorithm: Algorithm,
    /// Twice the cost, and one more if it fits: beside the cost that takes no room of its own, and
    /// there are many.
    cost_and_fits: u64,
    // The rest of the reading, in pieces.
    wait: Micros,
    level: [u64; 2],
    next: Micros,
    at: Micros,
}

impl LaterVerdict {
    /// `None` if the decision has taken something, or tells nothing about later ones.
    pub(crate) fn by(algorithm: &Algorithm, action: &Action, decision: &Decision) -> Option<Self> {
        let is_held = algorithm.lease().is_some();
        let (fits, wait) = match decision.outcome {
            // A penalty that bans nobody has to hear of every denial.
            Outcome::Allowed if !algorithm.is_penalty() => (true, decision.delay),
            // Held permits come back at any time.
            Outcome::Denied | Outcome::Banned if !is_held => (false, decision.retry_after),
            // Waiting does not help, whatever is held.
            Outcome::NeverFits if !is_held => (false, NEVER),
            _ => return None,
        };
        Some(Self {
            algorithm: *algorithm,
            cost_and_fits: action.acquires() << 1 | u64::from(fits),
            wait,
            level: arithmetic!(&algorithm.0, it => it.level(decision)),
            next: decision.next_after(),
            at: decision.receipt.at,
        })
    }

    fn cost(&self) -> u64 {
        self.cost_and_fits >> 1
    }

    fn fits(&self) -> bool {
        self.cost_and_fits & 1 == 1
    }

    /// What the store would read after this time if nobody has changed the key. `None` if that is
    /// not known.
    pub(crate) fn later(
        &self,
        elapsed: Micros,
        algorithm: &Algorithm,
        acquire: &Acquire,
    ) -> Option<Reading> {
        if *algorithm != self.algorithm {
            return None;
        }
        let reading = Reading::new(self.fits(), self.wait, self.level, self.next, self.at);
        let cost = self.cost();
        let mut later =
            arithmetic!(&algorithm.0, it => it.later(&reading, cost, elapsed, acquire))?;
        if algorithm.never_fits(acquire) {
            later.wait = NEVER;
        }
        Some(later)
    }

    /// Whether it tells the whole wait of this take.
    pub(crate) fn tells_all_of(&self, acquire: &Acquire) -> bool {
        self.cost() == acquire.cost
            || self.algorithm.tells_of_every_cost()
            || self.algorithm.never_fits(acquire)
    }

    /// Whether they differ at most in their cost.
    pub(crate) fn is_by_the_rules_of(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm
    }

    /// Whether a denial of this one also denies the other, as of then.
    pub(crate) fn denies_for(&self, other: &Self) -> bool {
        !self.fits() && self.cost() <= other.cost()
    }

    /// Whether the other one tells everything that this one tells.
    pub(crate) fn is_superseded_by(&self, other: &Self) -> bool {
        self.is_by_the_rules_of(other)
            && (self.cost() == other.cost() || self.algorithm.tells_of_every_cost())
    }
}

impl Algorithm {
    /// The decision for a reading from memory: nothing is taken.
    pub(crate) fn decision_from_memory(&self, reading: &Reading, action: &Action) -> Decision {
        let mut decision = self.decide(reading, action, false);
        decision.is_remembered = true;
        decision
    }

    /// Whether what is known of one cost is enough to decide any other.
    fn tells_of_every_cost(&self) -> bool {
        self.can_wait() || matches!(self.0, Which::FixedWindow(_))
    }
}
