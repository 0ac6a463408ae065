//! `Claim`: that somebody does what others wait for, until an instant.
//!
//! A task goes on only while its runtime is driven. That of a thread which blocks on a decision now and
//! then is not in between, and its tasks are not dropped either. So what a process has one task for is
//! claimed for as long as it may take: who finds that a claim has lapsed makes one anew, and whoever had
//! it before changes nothing any more when it goes on after all.

use std::sync::atomic::{AtomicU64, Ordering};

/// Among what a lock protects; a [`Duty`](super::duty::Duty) needs none. By a clock whose instants are `I`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<I> {
    number: Number,
    until: I,
}

#[cfg(feature = "redis")]
impl<I> Claim<I> {
    pub(super) fn end(self) -> I {
        self.until
    }

    /// The same one, until another instant.
    pub(super) fn prolonged(self, until: I) -> Self {
        Self { until, ..self }
    }
}

/// Tells claims apart. A later one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number(u64);

impl<I: Copy + Ord> Claim<I> {
    /// A new one.
    pub(super) fn until(until: I) -> Self {
        Self {
            number: Number::next(),
            until,
        }
    }

    pub(super) fn number(&self) -> Number {
        self.number
    }

    /// Whether it is the one of this number.
    pub(super) fn is(&self, number: Number) -> bool {
        self.number == number
    }

    pub(super) fn has_lapsed(&self, now: I) -> bool {
        now >= self.until
    }
}

impl Number {
    /// One that none has had in this process.
    pub(super) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
