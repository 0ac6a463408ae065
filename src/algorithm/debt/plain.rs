//! The numbers by which a plain take is judged, without fractions and patience.

#[cfg(feature = "redis")]
use super::super::ScaledTake;
use super::super::{Action, Patience, PlainTake, Reading};
#[cfg(feature = "memory")]
use super::State;
use super::{Debt, Span};
use crate::decision::{Decision, Outcome, Receipt, is_near_limit};
use crate::time::Micros;

/// With more parts, a script's 53-bit numbers would have no room for several takes. For a capacity
/// that comes back in a day, a microsecond may have 13 000 parts.
#[cfg(feature = "redis")]
const MOST_PARTS: u64 = 1 << 50;

impl Debt {
    /// The plain take, if it is one: the debt is in whole microseconds, the take is final and can
    /// fit, and nobody waits for it.
    #[inline]
    pub(in super::super) fn plain_take(&self, action: &Action) -> Option<PlainTake> {
        if self.interval.scale() != 1 {
            return None;
        }
        self.cost_at_once(action).map(|cost| {
            let cost_us = self.price(cost).us;
            let room_us = self.tolerance.us - cost_us;
            PlainTake { cost_us, room_us }
        })
    }

    /// The same with fractions of a microsecond. `None` if there are too many parts.
    #[cfg(feature = "redis")]
    pub(in super::super) fn scaled_take(&self, action: &Action) -> Option<ScaledTake> {
        let scale = self.interval.scale();
        if scale == 1 {
            let parts = self.plain_take(action)?;
            return Some(ScaledTake { scale, parts });
        }
        let cost = self.cost_at_once(action)?;
        let cost = self.interval.parts(self.price(cost))?;
        let tolerance = self.interval.parts(self.tolerance)?;
        let parts = PlainTake {
            cost_us: cost,
            room_us: tolerance - cost,
        };
        (tolerance < MOST_PARTS).then_some(ScaledTake { scale, parts })
    }

    /// The cost of a final take without waiting, if it can ever fit.
    #[inline]
    fn cost_at_once(&self, action: &Action) -> Option<u32> {
        let Action::Take(take) = action else {
            return None;
        };
        let is_at_once = !self.queues
            && take.is_final
            && take.patience == Patience::None
            && (1..=self.capacity).contains(&take.cost);
        is_at_once.then_some(take.cost)
    }

    /// Reads, carries out and decides in one step.
    #[cfg(feature = "memory")]
    #[inline]
    pub(super) fn ask_plainly(&self, state: &mut State, now: Micros, take: PlainTake) -> Decision {
        let debt = self.debt(state, now);
        let reading = take.read(debt.us);
        if reading.fits {
            self.owe(state, now, Span::whole(debt.us + take.cost_us));
        }
        self.decide_plainly(&reading, take, reading.fits)
    }

    /// Turns the reading into the answer.
    #[inline]
    pub(super) fn decide_plainly(
        &self,
        reading: &Reading,
        take: PlainTake,
        committed: bool,
    ) -> Decision {
        let [debt_us, _] = reading.level;
        let taken_us = if committed { take.cost_us } else { 0 };
        let owed_us = debt_us.saturating_add(taken_us);
        let slack = Span::whole(self.tolerance.us.saturating_sub(owed_us));
        let remaining = self.interval.fit_into(slack);
        let renews_after = match remaining {
            0 => self.over(Span::whole(owed_us), 1).ceil(),
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
            reset_after: Micros::new(owed_us),
            // After this wait the whole cost fits, and so does a single permit.
            renews_after: if reading.fits {
                renews_after
            } else {
                renews_after.min(wait)
            },
            receipt: Receipt {
                mark: [owed_us, 0],
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
    use crate::algorithm::{Arithmetic as _, decide, gcra};
    use crate::limit::Limit;
    use crate::time::DAY;

    #[test]
    fn a_take_of_too_many_parts_is_not_plain() {
        let scaled = |burst: u32| {
            let limit = Limit::gcra(999_983, DAY).burst(burst);
            gcra::new(&limit.sound().unwrap()).scaled_take(&Action::spend(1))
        };
        assert!(scaled(13_000).is_some());
        assert_eq!(scaled(14_000), None);
    }

    proptest! {
        #[test]
        fn a_plain_take_is_decided_as_any_other(
            (permits, period_us) in (1..2_000_u32, 1..100_u64),
            (capacity, cost) in (1..50_u32, 1..50_u32),
            (us, part, scale) in (0..200_000_u64, 0..3_u32, 1..4_u32),
            now_us in 0..200_000_u64,
        ) {
            // A whole number of microseconds for each permit.
            let period = std::time::Duration::from_micros(period_us * 1_000 * u64::from(permits));
            let debt = gcra::new(&Limit::gcra(permits, period).burst(capacity).sound().unwrap());
            let (now, action) = (Micros::new(now_us), Action::spend(cost));
            let state = State { us, part: part.min(scale - 1), scale };
            let Some(plain) = debt.plain_take(&action) else {
                prop_assert!(cost > capacity);
                return Ok(());
            };
            let (mut one, mut other) = (state, state);
            let decision = debt.ask_plainly(&mut one, now, plain);
            prop_assert_eq!(decision, decide::ask(&debt, &mut other, now, &action));
            prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
            let reading = plain.read(debt.debt(&state, now).us);
            for committed in [false, reading.fits] {
                let decided = debt.decide_plainly(&reading, plain, committed);
                prop_assert_eq!(decided, decide::decide(&debt, &reading, &action, committed));
            }
        }

        #[test]
        fn a_scaled_take_is_read_as_any_other(
            (permits, period_us, capacity) in (1..70_u32, 1_000..9_000_u64, 1..50_u32),
            (cost, others) in (1..50_u32, 0..60_u32),
            (us, part) in (0..200_000_u64, 0..9_u32),
            now_us in 0..200_000_u64,
        ) {
            let period = std::time::Duration::from_micros(period_us * 1_000);
            let limit = Limit::gcra(permits, period).burst(capacity);
            let debt = gcra::new(&limit.sound().unwrap());
            let (now, action) = (Micros::new(now_us), Action::spend(cost));
            let scale = debt.interval.scale();
            let Some(scaled) = debt.scaled_take(&action) else {
                prop_assert!(cost > capacity);
                return Ok(());
            };
            let mut state = State { us, part: part.min(scale - 1), scale };
            let owed = debt.interval.parts(debt.debt(&state, now)).unwrap();
            for _ in 0..others {
                let _ = decide::ask(&debt, &mut state, now, &action);
            }
            let Action::Take(take) = &action else { panic!("it is a take") };
            let expected = debt.read(&state, now, take);
            let read = scaled.read_behind(owed, others);
            prop_assert_eq!((read.fits, read.wait), (expected.fits, expected.wait));
            prop_assert_eq!(read.level, expected.level);
        }
    }
}
