//! `LeaderClaim`: one task's claim, until an instant, to do what others wait for.
//!
//! A task runs only while its runtime is driven. The runtime of a thread that blocks on a decision
//! now and then is not driven in between, yet its tasks are not dropped either. So work that a
//! process leaves to one task is claimed only for as long as it may take. Whoever finds that a
//! claim has lapsed makes a new one, and the holder of the old claim, should it resume after all,
//! changes nothing any more.

use std::sync::atomic::{AtomicU64, Ordering};

/// For use under a lock; a [`LeaderLock`](super::leader_lock::LeaderLock) needs none. `I` is the clock's type of
/// instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaderClaim<I> {
    number: Number,
    until: I,
}

/// Tells claims apart. A later one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

impl<I: Copy + Ord> LeaderClaim<I> {
    /// A new claim.
    pub(super) fn until(until: I) -> Self {
        Self {
            number: Number::next(),
            until,
        }
    }

    pub(super) fn number(&self) -> Number {
        self.number
    }

    /// Whether the claim has this number.
    pub(super) fn is(&self, number: Number) -> bool {
        self.number == number
    }

    pub(super) fn has_lapsed(&self, now: I) -> bool {
        now >= self.until
    }
}

impl Number {
    /// A number that no other claim of this process has.
    pub(super) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
