//! When permits may be handed out later than they were taken without exceeding the limit.
//!
//! A permit counts from the instant at which it was taken, and comes back a fixed time after that.
//! Handed out later, it would be used when it no longer counts, and the limit would be given once
//! more. So it may only be handed out
//!
//! - with `gcra` and the buckets: until its own part of the debt begins to be paid. Each owed
//!   permit has a part to itself, one after the other, so what is handed out in any interval fits
//!   into the interval's length and the tolerance, whoever took it;
//! - with a fixed window: while the window lasts.
//!
//! Sliding algorithms allow no delay at all: a permit of a sliding log that is handed out a moment
//! late is missing from the count for that moment, a whole window later.

use super::dispatch::{Algorithm, Which};
use crate::decision::Decision;
use crate::time::Micros;

impl Algorithm {
    /// Whether permits may be handed out later than they were taken.
    pub(crate) fn can_be_late(&self) -> bool {
        let is_window = matches!(self.0, Which::FixedWindow(_));
        (is_window || self.debt().is_some()) && !self.queues()
    }

    /// Whether a receipt distinguishes permits taken before their key was forgotten from those
    /// taken since. It does by the window, if the next request opens a new one. Debts may be equal
    /// at two times.
    pub(crate) fn tells_what_was_forgotten(&self) -> bool {
        matches!(&self.0, Which::FixedWindow(window) if !window.is_aligned())
    }

    /// How many permits at most, of everything taken up to this decision, may still be handed out
    /// this long after it.
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

    /// How many permits come back one by one in this time; none for a window, which gives all back
    /// at its end.
    pub(crate) fn permits_in(&self, time: Micros) -> u64 {
        self.debt().map_or(0, |debt| debt.permits_in(time))
    }
}
