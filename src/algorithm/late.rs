//! Permits that are handed out later than they were taken, and the limit holds all the same.
//!
//! A permit counts from the instant at which it was taken, and comes back so long after that. Whoever
//! hands it out later would have it used when it counts no more, and the limit given once more. So
//! it may be handed out
//!
//! - of those that keep a debt: while its own time in that debt has not begun to be paid. Each permit
//!   that is owed has such a time to itself, one behind the other, so that what is handed out in any
//!   interval fits into its length and the tolerance, whoever has taken what;
//! - of a fixed window: while the window lasts.
//!
//! What slides has no such bound but none at all: a permit of a sliding log that is handed out a
//! moment after it was taken is missing from the count for that moment, a whole window later.

use super::{Algorithm, Which};
use crate::decision::Decision;
use crate::time::Micros;

impl Algorithm {
    /// Whether permits may be handed out later than they were taken.
    pub(crate) fn can_be_late(&self) -> bool {
        matches!(
            self.0,
            Which::Gcra(_) | Which::TokenBucket(_) | Which::LeakyBucket(_) | Which::FixedWindow(_)
        ) && !self.queues()
    }

    /// Whether a receipt tells permits that were taken before their key was forgotten from those that were taken
    /// since: by the window, where the next one opens with who comes next. The debts of two times can be equal.
    pub(crate) fn tells_what_was_forgotten(&self) -> bool {
        matches!(&self.0, Which::FixedWindow(window) if !window.is_aligned())
    }

    /// How many permits at most may still be handed out so long after this decision, of all that was
    /// taken up to it.
    pub(crate) fn permits_left_after(&self, decision: &Decision, elapsed: Micros) -> u32 {
        match &self.0 {
            Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt) => {
                let now = decision.receipt.at.saturating_add(elapsed);
                debt.permits_unpaid(&decision.receipt, now)
            }
            Which::FixedWindow(_) if elapsed < decision.renews_after => u32::MAX,
            _ => 0,
        }
    }

    /// How many permits come back in this time, one by one: none of a window that gives them all at
    /// its end.
    pub(crate) fn permits_in(&self, time: Micros) -> u32 {
        match &self.0 {
            Which::Gcra(debt) | Which::TokenBucket(debt) | Which::LeakyBucket(debt) => {
                debt.permits_in(time)
            }
            _ => 0,
        }
    }
}
