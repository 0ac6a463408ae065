//! `FastPath`: the acquire of most requests, which two numbers decide: without verbs, and without
//! waiting.

use super::super::action::{Action, Wait};
use super::super::fixed_point::FixedMicros;
use super::super::reading::Reading;
use super::Debt;
#[cfg(feature = "memory")]
use super::State;
use crate::decision::{Decision, Outcome, Receipt, is_near_limit};
use crate::time::Micros;

/// A final acquire without waiting that can fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastPath {
    /// What the permits take in time.
    pub(crate) cost: FixedMicros,
    /// The largest debt with which they fit.
    pub(crate) room: FixedMicros,
}

impl FastPath {
    /// `None` for anything else: an acquire that waits, may be given back, costs nothing or never
    /// fits, and a queue or another algorithm.
    #[cfg(feature = "redis")]
    pub(crate) fn of(algorithm: &super::super::Algorithm, action: &Action) -> Option<Self> {
        algorithm.debt()?.fast_path(action)
    }

    /// The reading for a key with this debt.
    #[cfg(any(feature = "memory", feature = "redis"))]
    #[inline]
    pub(crate) fn read(self, debt: FixedMicros) -> Reading {
        Reading {
            fits: debt <= self.room,
            wait: debt.saturating_sub(self.room).ceil(),
            level: [debt.us, debt.fraction.into()],
            next: Micros::ZERO,
            // Nobody needs the instant: the permits are not given back.
            at: Micros::ZERO,
        }
    }

    /// How many of so many equal acquires fit, one after the other, given this debt before them.
    #[cfg(feature = "redis")]
    pub(crate) fn fitting(self, debt: FixedMicros, repeated: u64) -> u64 {
        // For most there are no others, and a division is slow.
        if repeated == 0 || debt > self.room {
            return 0;
        }
        let more = self.room.saturating_sub(debt).divided_by(self.cost);
        repeated.min(more.saturating_add(1))
    }

    /// The reading after so many equal acquires were admitted.
    #[cfg(feature = "redis")]
    pub(crate) fn read_after(self, debt: FixedMicros, repeated: u64) -> Reading {
        match repeated {
            0 => self.read(debt),
            _ => self.read(debt.saturating_add(self.cost.times(repeated))),
        }
    }
}

impl Debt {
    /// The fast path, if the action may take it.
    #[inline]
    pub(in super::super) fn fast_path(&self, action: &Action) -> Option<FastPath> {
        let Action::Acquire(acquire) = action else {
            return None;
        };
        let is_at_once = !self.queues
            && acquire.is_final
            && !acquire.takes_fewer
            && acquire.wait == Wait::None
            && (1..=self.capacity).contains(&acquire.cost);
        is_at_once.then(|| {
            let cost = self.price(acquire.cost);
            let room = self.tolerance().saturating_sub(cost);
            FastPath { cost, room }
        })
    }

    /// Reads, carries out and decides in one step.
    #[cfg(feature = "memory")]
    #[inline]
    pub(super) fn ask_fast(&self, state: &mut State, now: Micros, path: FastPath) -> Decision {
        let debt = self.debt(state, now);
        let reading = path.read(debt);
        if reading.fits {
            self.owe(state, now, debt.saturating_add(path.cost));
        }
        self.decide_fast(&reading, path, reading.fits)
    }

    /// Turns the reading into the answer.
    #[inline]
    pub(super) fn decide_fast(
        &self,
        reading: &Reading,
        path: FastPath,
        committed: bool,
    ) -> Decision {
        let debt = self.debt_read(reading, 0);
        let owed = match committed {
            true => debt.saturating_add(path.cost),
            false => debt,
        };
        let remaining = self.permits_of(self.tolerance().saturating_sub(owed));
        let renews_after = match remaining {
            0 => self.over(owed, 1).ceil(),
            _ => Micros::ZERO,
        };
        let (outcome, wait) = if reading.fits {
            (Outcome::Allowed, Micros::ZERO)
        } else {
            (Outcome::Denied, reading.wait)
        };
        Decision {
            is_near_limit: reading.fits && is_near_limit(remaining, self.capacity),
            remaining,
            retry_after: wait,
            reset_after: owed.ceil(),
            // After this wait the whole cost fits, and so does a single permit.
            renews_after: if reading.fits {
                renews_after
            } else {
                renews_after.min(wait)
            },
            receipt: Receipt {
                mark: [owed.us, owed.fraction.into()],
                ..Receipt::default()
            },
            ..Decision::unasked(outcome, (self.limit, self.period))
        }
    }
}

#[cfg(all(test, feature = "memory", feature = "redis"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::arithmetic::{Arithmetic as _, ask, decide};
    use crate::limit::Limit;

    proptest! {
        #[test]
        fn the_fast_path_decides_like_any_other(
            (permits, period_ms) in (1..2_000_u64, 1..100_000_u64),
            (capacity, cost) in (1..50_u64, 1..50_u64),
            (us, fraction) in (0..200_000_u64, prop_oneof![Just(0), any::<u32>()]),
            now_us in 0..200_000_u64,
            others in 0..60_u64,
        ) {
            let period = std::time::Duration::from_millis(period_ms);
            let debt = Debt::new(&Limit::gcra(permits, period).burst(capacity).valid().unwrap());
            let (now, action) = (Micros::new(now_us), Action::consume(cost));
            let state = State(FixedMicros { us, fraction });
            let Some(path) = debt.fast_path(&action) else {
                prop_assert!(cost > capacity);
                return Ok(());
            };
            let (mut one, mut other) = (state, state);
            let decision = debt.ask_fast(&mut one, now, path);
            prop_assert_eq!(decision, ask(&debt, &mut other, now, &action));
            prop_assert_eq!(one.0, other.0);

            let before = debt.debt(&state, now);
            let mut state = state;
            for _ in 0..others {
                let _ = ask(&debt, &mut state, now, &action);
            }
            let Action::Acquire(acquire) = &action else { panic!("it acquires") };
            let expected = debt.read(&state, now, acquire);
            let read = path.read_after(before, path.fitting(before, others));
            prop_assert_eq!((read.fits, read.wait), (expected.fits, expected.wait));
            prop_assert_eq!(read.level, expected.level);
            for committed in [false, read.fits] {
                prop_assert_eq!(
                    debt.decide_fast(&read, path, committed),
                    decide(&debt, &read, &action, committed)
                );
            }
        }
    }
}
