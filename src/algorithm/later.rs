//! What an answer still means later: the verdict on a key whose permits were not acquired
//! (`LaterVerdict`), and how late acquired permits may be handed out.

use super::action::{Acquire, Action};
use super::arithmetic::Arithmetic as _;
use super::dispatch::{Algorithm, Which, arithmetic};
use super::reading::Reading;
use crate::decision::{Decision, Outcome};
use crate::time::Micros;

/// The wait of a cost that never fits, longer than any round trip.
const NEVER: Micros = Micros::new(u64::MAX);

/// A decision about a key, from which later questions can be decided as long as the key does not
/// change otherwise than with time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaterVerdict {
    algorithm: Algorithm,
    /// Twice the cost, plus one if it fits, which keeps this small: there are many.
    cost_and_fits: u64,
    // The rest of the reading, in pieces.
    wait: Micros,
    level: [u64; 2],
    next: Micros,
    at: Micros,
}

impl LaterVerdict {
    /// `None` if the decision has acquired permits, or says nothing about later questions.
    pub(crate) fn by(algorithm: &Algorithm, action: &Action, decision: &Decision) -> Option<Self> {
        let is_held = algorithm.lease().is_some();
        let (fits, wait) = match decision.outcome {
            // A penalty without a ban has to count every denial.
            Outcome::Allowed if !algorithm.is_penalty() => (true, decision.delay),
            // Permits of a lease come back at any time.
            Outcome::Denied | Outcome::Banned if !is_held => (false, decision.retry_after),
            // It never fits.
            Outcome::NeverFits if !is_held => (false, NEVER),
            _ => return None,
        };
        Some(Self {
            algorithm: *algorithm,
            cost_and_fits: action.least().acquires() << 1 | u64::from(fits),
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

    /// The store's reading after this time, if the key has not been changed. `None` if that is not
    /// known.
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

    /// Whether it knows the whole wait of this acquire.
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

    /// Whether the other one contains everything that this one does.
    pub(crate) fn is_superseded_by(&self, other: &Self) -> bool {
        self.is_by_the_rules_of(other)
            && (self.cost() == other.cost() || self.algorithm.tells_of_every_cost())
    }
}

impl Algorithm {
    /// The decision for a reading from memory, which acquires nothing.
    pub(crate) fn decision_from_memory(&self, reading: &Reading, action: &Action) -> Decision {
        let mut decision = self.decide(reading, action, false);
        decision.is_remembered = true;
        decision
    }

    /// Whether the verdict on one cost is enough to decide any other.
    fn tells_of_every_cost(&self) -> bool {
        self.can_wait() || matches!(self.0, Which::FixedWindow(_))
    }

    /// Whether permits may be handed out later than they were acquired without exceeding the limit.
    ///
    /// A permit counts from the instant at which it was acquired, and comes back a fixed time later.
    /// If it were handed out after that, the limit would be exceeded. So it may be handed out only
    ///
    /// - under `gcra` and the buckets, until its own part of the debt begins to be paid. The parts of
    ///   all owed permits follow each other, so what is handed out in any interval fits into the
    ///   interval's length and the tolerance;
    /// - under a fixed window, while the window lasts.
    ///
    /// Sliding algorithms allow no delay: a permit of a sliding log that is handed out a moment late
    /// would stop counting that moment too early, a window later.
    pub(crate) fn can_be_late(&self) -> bool {
        let is_window = matches!(self.0, Which::FixedWindow(_));
        (is_window || self.debt().is_some()) && !self.queues()
    }

    /// Whether a receipt distinguishes permits acquired before a reset of their key from those
    /// acquired since. A window does, if the next request opens a new one. A debt does not: it may be
    /// equal at two times.
    pub(crate) fn tells_what_was_forgotten(&self) -> bool {
        matches!(&self.0, Which::FixedWindow(window) if !window.is_aligned())
    }

    /// How many of the permits acquired up to this decision may still be handed out after this time.
    pub(crate) fn permits_left_after(&self, decision: &Decision, elapsed: Micros) -> u64 {
        if let Some(debt) = self.debt() {
            let now = decision.receipt.at.saturating_add(elapsed);
            return debt.permits_unpaid(&decision.receipt, now);
        }
        match self.0 {
            Which::FixedWindow(_) if elapsed < decision.renews_after => u64::MAX,
            _ => 0,
        }
    }

    /// How many permits come back one by one in this time; none for a window, whose permits come
    /// back together.
    pub(crate) fn permits_in(&self, time: Micros) -> u64 {
        self.debt().map_or(0, |debt| debt.permits_in(time))
    }
}
