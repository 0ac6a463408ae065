//! Work that one task of a process does at a time, and the others wait for.
//!
//! A task runs only while its runtime is driven. The runtime of a thread that blocks on a decision
//! now and then is not driven in between, yet its tasks are not dropped either. So work that a
//! process leaves to one task is claimed only for as long as it may take. Whoever finds that a
//! claim has lapsed makes a new one, and the holder of the old claim, should it resume after all,
//! changes nothing any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::time::Micros;

/// Somebody has a turn at it, or nobody. Without a lock, since every question reads it.
pub(crate) struct LeaderLock {
    since: Instant,
    /// The end of the turn, in microseconds after `since`; zero if nobody has one.
    until_us: AtomicU64,
}

/// A turn, until it lapses. Its end identifies it: later turns end later.
pub(crate) struct Turn(u64);

impl LeaderLock {
    /// Begins a turn of this length, if nobody has one.
    pub(crate) fn begin(&self, length: Duration) -> Option<Turn> {
        let (now_us, until_us) = (self.now_us(), self.until_us.load(Ordering::Relaxed));
        let turn = Turn(now_us + us(length));
        (now_us >= until_us && self.replace(until_us, turn.0)).then_some(turn)
    }

    /// Prolongs a turn to this length from now. Returns whether nobody else has begun one.
    pub(crate) fn extend(&self, turn: &mut Turn, length: Duration) -> bool {
        let later = Turn((self.now_us() + us(length)).max(turn.0 + 1));
        let is_mine = self.replace(turn.0, later.0);
        if is_mine {
            *turn = later;
        }
        is_mine
    }

    /// Ends a turn. Returns whether nobody else had begun one.
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

/// One task's claim, until an instant. For use under a lock; a [`LeaderLock`] needs none. `I` is the
/// clock's type of instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderClaim<I> {
    number: Number,
    until: I,
}

/// Tells claims apart. A later one has a higher number.
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
