//! GCRA: the generic cell rate algorithm, ITU-T Recommendation I.371, Annex A. Mirrors
//! `lua/gcra.lua`.
//!
//! One stored instant, the theoretical arrival time: the instant at which all that was taken is
//! paid back. It lies ahead of now by the *debt*; a cost fits while the debt with it stays within
//! the burst. An interval that is no whole number of microseconds keeps its fraction as an integer
//! ratio, so that no rate is ever rounded.

use super::span::{Interval, Span};
use super::{Arguments, Reading, Twin};
use crate::limit::SoundLimit;
use crate::time::Micros;

#[derive(Clone, Copy, Debug)]
pub(super) struct Gcra {
    limit: u32,
    period: Micros,
    burst: u32,
    interval: Interval,
    /// The time in which a whole burst comes back: the most debt there may be.
    tolerance: Span,
}

/// The theoretical arrival time `us + part / scale`; the epoch for a key that was never used.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    us: u64,
    part: u32,
    scale: u32,
}

impl Default for State {
    fn default() -> Self {
        Self {
            us: 0,
            part: 0,
            scale: 1,
        }
    }
}

impl Gcra {
    pub(super) fn new(limit: &SoundLimit) -> Self {
        let interval = Interval::new(limit.permits, limit.period);
        Self {
            limit: limit.permits,
            period: limit.period,
            burst: limit.burst,
            interval,
            tolerance: interval.times(limit.burst.into()),
        }
    }

    fn debt(&self, state: &State, now: Micros) -> Span {
        let arrival = if state.part == 0 || state.scale == self.interval.scale() {
            Span {
                us: state.us,
                part: state.part,
            }
        } else {
            // The rate was changed: the old fraction, rounded up, so that nothing is forgiven.
            Span {
                us: state.us.saturating_add(1),
                part: 0,
            }
        };
        let now = Span {
            us: now.get(),
            part: 0,
        };
        self.interval.difference(arrival, now)
    }

    /// What so many permits cost in time; more than the burst costs as much as one too many.
    fn price(&self, cost: u32) -> Span {
        let most = u64::from(self.burst) + 1;
        self.interval.times(u64::from(cost).min(most))
    }

    /// The debt that was read, once so many permits more were taken.
    fn debt_read(&self, reading: &Reading, taken: u32) -> Span {
        let [us, part] = reading.level;
        // A store that replies nonsense must not panic: a part is below the scale.
        let is_part = |part: &u32| *part < self.interval.scale();
        let part = u32::try_from(part).ok().filter(is_part).unwrap_or(0);
        self.interval.sum(Span { us, part }, self.price(taken))
    }
}

impl Twin for Gcra {
    type State = State;

    fn read(&self, state: &State, now: Micros, cost: u32) -> Reading {
        let debt = self.debt(state, now);
        let with_cost = self.interval.sum(debt, self.price(cost));
        let fits = cost == 0 || with_cost <= self.tolerance;
        let wait = if fits {
            Micros::ZERO
        } else {
            self.interval.difference(with_cost, self.tolerance).ceil()
        };
        Reading {
            fits,
            wait,
            level: [debt.us, debt.part.into()],
        }
    }

    fn charge(&self, state: &mut State, now: Micros, cost: u32) {
        let debt = self.interval.sum(self.debt(state, now), self.price(cost));
        *state = State {
            us: now.get().saturating_add(debt.us),
            part: debt.part,
            scale: self.interval.scale(),
        };
    }

    fn expires_at(state: &State) -> Micros {
        Span {
            us: state.us,
            part: state.part,
        }
        .ceil()
    }

    fn capacity(&self) -> u32 {
        self.burst
    }

    fn quota(&self) -> (u32, Micros) {
        (self.limit, self.period)
    }

    fn left(&self, reading: &Reading, charged: u32) -> (u32, Micros) {
        let debt = self.debt_read(reading, charged);
        let slack = self.interval.difference(self.tolerance, debt);
        (self.interval.fit_into(slack), debt.ceil())
    }

    fn renews_after(&self, reading: &Reading, charged: u32) -> Micros {
        let with_one = self.debt_read(reading, charged.saturating_add(1));
        self.interval.difference(with_one, self.tolerance).ceil()
    }

    fn arguments(&self, cost: u32) -> Arguments {
        let price = self.price(cost);
        [
            price.us,
            price.part.into(),
            self.tolerance.us,
            self.tolerance.part.into(),
            self.interval.scale().into(),
        ]
    }
}
