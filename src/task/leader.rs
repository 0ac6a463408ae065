//! Work that one task of a process does at a time while the others wait.
//!
//! A task makes progress only while its runtime is driven. A thread that blocks on single decisions
//! does not drive its runtime in between, yet the runtime's tasks stay alive. So leadership has a
//! time limit. Once it has expired, another task can become leader, and the old leader, should it
//! resume, can no longer change anything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::time::Micros;

/// A leader lock with a time limit. Lock-free, since every store call reads it.
pub(crate) struct LeaderLock {
    since: Instant,
    /// The end of the turn, in microseconds after `since`; zero without a leader.
    until_us: AtomicU64,
}

/// A leader's turn, until it expires. Its end identifies it: later turns end later.
pub(crate) struct Turn(u64);

impl LeaderLock {
    /// Begins a turn of this length, unless another turn is active.
    pub(crate) fn begin(&self, length: Duration) -> Option<Turn> {
        let (now_us, until_us) = (self.now_us(), self.until_us.load(Ordering::Relaxed));
        let turn = Turn(now_us + us(length));
        (now_us >= until_us && self.replace(until_us, turn.0)).then_some(turn)
    }

    /// Extends a turn to this length from now. Returns `false` if another turn has begun.
    pub(crate) fn extend(&self, turn: &mut Turn, length: Duration) -> bool {
        let later = Turn((self.now_us() + us(length)).max(turn.0 + 1));
        let is_mine = self.replace(turn.0, later.0);
        if is_mine {
            *turn = later;
        }
        is_mine
    }

    /// Ends a turn. Returns `false` if another turn had begun.
    pub(crate) fn end(&self, turn: &Turn) -> bool {
        self.replace(turn.0, 0)
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        let replaced =
            self.until_us
                .compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        replaced.is_ok()
    }

    fn now_us(&self) -> u64 {
        us(self.since.elapsed())
    }
}

impl Default for LeaderLock {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            until_us: AtomicU64::new(0),
        }
    }
}

fn us(time: Duration) -> u64 {
    Micros::from(time).get()
}

/// A task's claim to be the leader until an instant. For use under a lock, unlike [`LeaderLock`].
/// `I` is the clock's type of instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderClaim<I> {
    number: Number,
    until: I,
}

/// Identifies a claim. Later claims have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(u64);

impl<I: Copy + Ord> LeaderClaim<I> {
    /// A new claim.
    pub(crate) fn until(until: I) -> Self {
        Self {
            number: Number::next(),
            until,
        }
    }

    pub(crate) fn number(&self) -> Number {
        self.number
    }

    /// Whether the claim has this number.
    pub(crate) fn is(&self, number: Number) -> bool {
        self.number == number
    }

    pub(crate) fn has_lapsed(&self, now: I) -> bool {
        now >= self.until
    }
}

impl Number {
    /// A number that no other claim of this process has.
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    #[tokio::test(start_paused = true)]
    async fn one_has_it_until_the_turn_is_ended_or_has_lapsed() {
        let leader = LeaderLock::default();
        let turn = leader.begin(SECOND).unwrap();
        assert!(leader.begin(SECOND).is_none());
        assert!(leader.end(&turn));
        let mut late = leader.begin(SECOND).unwrap();
        tokio::time::advance(SECOND).await;
        let mut turn = leader.begin(SECOND).unwrap();
        assert!(!leader.extend(&mut late, SECOND));
        assert!(!leader.end(&late));
        assert!(leader.extend(&mut turn, 2 * SECOND));
        tokio::time::advance(SECOND).await;
        assert!(leader.begin(SECOND).is_none());
    }
}
