//! Sliding counter: at most `limit` permits in the last window, estimated from two counts. Mirrors
//! `lua/sliding_counter.lua`.
//!
//! Windows start at multiples of their length since the epoch. The estimate is the current window's
//! count plus the share of the previous window's count that the last `window` still overlaps,
//! rounded up: as if those permits had been acquired evenly.

use super::action::{Acquire, Action};
use super::arithmetic::{Arithmetic, Left};
use super::reading::{
    Arguments, Reading, Share, added, fits, remaining, too_many, window_arguments,
};
use crate::limit::{MOST_PERMITS, ValidLimit};
use crate::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlidingCounter {
    limit: u64,
    window: Micros,
}

/// The counts of a window and of the one before it, each within the largest limit; a window of no
/// length for a key that was never used.
///
/// Nearly all counts have 32 bits. Larger ones are boxed, or the slots of a memory store would be
/// larger for every key of every algorithm.
#[derive(Clone, Debug)]
pub(super) enum State {
    Small {
        opened: Micros,
        window: Micros,
        current: u32,
        previous: u32,
    },
    Large(Box<Counts>),
}

impl Default for State {
    fn default() -> Self {
        Self::Small {
            opened: Micros::ZERO,
            window: Micros::ZERO,
            current: 0,
            previous: 0,
        }
    }
}

impl From<Counts> for State {
    fn from(counts: Counts) -> Self {
        let Counts {
            opened,
            window,
            current,
            previous,
        } = counts;
        if let (Ok(current), Ok(previous)) = (current.try_into(), previous.try_into()) {
            return Self::Small {
                opened,
                window,
                current,
                previous,
            };
        }
        // No count exceeds the largest limit.
        Self::Large(Box::new(Counts {
            current: current.min(MOST_PERMITS),
            previous: previous.min(MOST_PERMITS),
            ..counts
        }))
    }
}

/// The counts as they stand at an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    opened: Micros,
    window: Micros,
    current: u64,
    previous: u64,
}

impl SlidingCounter {
    pub(super) fn new(limit: &ValidLimit) -> Self {
        Self {
            limit: limit.permits,
            window: limit.period,
        }
    }

    /// The counts at `now`, in windows of this limit's length.
    fn counts(&self, state: &State, now: Micros) -> Counts {
        self.counted_anew(state.counts(now), now)
    }

    /// The counts after a change of the window's length: how the permits are spread over the new
    /// windows is unknown, so all of them count as acquired in the current one.
    fn counted_anew(&self, counts: Counts, now: Micros) -> Counts {
        if counts.window == self.window {
            return counts;
        }
        self.counted_at(&counts, now.max(counts.opened))
    }

    /// All that counts, as if it had been acquired in the window that `at` is in.
    fn counted_at(&self, counts: &Counts, at: Micros) -> Counts {
        Counts {
            opened: start_of_window(at, self.window),
            window: self.window,
            current: counts.used(at.max(counts.opened)),
            previous: 0,
        }
    }

    /// How many of the permits acquired at that instant, in windows of this limit's length, still
    /// count at least. No fewer did when they were counted anew.
    fn still_count(&self, permits: u64, taken_at: Micros, now: Micros) -> u64 {
        let window = self.window;
        let ends = start_of_window(taken_at, window).saturating_add(window);
        let overlap = ends.saturating_add(window).saturating_sub(now).min(window);
        multiply_divide(permits, overlap.get(), window.get()).0
    }

    /// The reading of these counts for an acquire or a charge of these permits, which fits.
    fn reading(&self, counts: &Counts, now: Micros, permits: u64) -> Reading {
        let used = counts.used(now.max(counts.opened));
        let is_left = too_many(self.limit, added(used, permits)) == 0;
        let next = if is_left {
            Micros::ZERO
        } else {
            let current = added(counts.current, permits);
            let after = Counts { current, ..*counts };
            self.fits_from(&after, 1).saturating_sub(now)
        };
        Reading {
            fits: true,
            wait: Micros::ZERO,
            level: [used, counts.gone().saturating_sub(now).get()],
            next,
            at: now,
        }
    }

    /// The instant from which `cost` fits. It does not fit yet.
    fn fits_from(&self, counts: &Counts, cost: u64) -> Micros {
        let window = counts.window;
        let ends = counts.opened.saturating_add(window);
        let taken = counts.current.saturating_add(cost);
        let (ends, counted, room) = match self.limit.checked_sub(taken) {
            Some(room) => (ends, counts.previous, room),
            // Not in this window. In the next one, the current count is the previous.
            None => (
                ends.saturating_add(window),
                counts.current,
                self.limit.saturating_sub(cost),
            ),
        };
        // The longest overlap at which the share leaves enough room: not a whole window, as the
        // count exceeds the room.
        let overlap = multiply_divide(room, window.get(), counted.max(1)).0;
        ends.saturating_sub(Micros::new(overlap))
    }
}

impl State {
    /// The counts as they were kept.
    fn kept(&self) -> Counts {
        match self {
            Self::Small {
                opened,
                window,
                current,
                previous,
            } => Counts {
                opened: *opened,
                window: *window,
                current: (*current).into(),
                previous: (*previous).into(),
            },
            Self::Large(counts) => **counts,
        }
    }

    /// The counts at `now`, in the windows in which they were counted.
    fn counts(&self, now: Micros) -> Counts {
        let kept = self.kept();
        // If the clock stepped back to before the window opened, this still counts in it.
        kept.rolled(now.max(kept.opened))
    }
}

impl Counts {
    fn rolled(&self, now: Micros) -> Self {
        let opened = start_of_window(now, self.window);
        let (current, previous) = if opened == self.opened {
            (self.current, self.previous)
        } else if opened == self.opened.saturating_add(self.window) {
            (0, self.current)
        } else {
            (0, 0)
        };
        Self {
            opened,
            window: self.window,
            current,
            previous,
        }
    }

    /// The permits used in the last window, for a `now` in the current one.
    fn used(&self, now: Micros) -> u64 {
        let overlap = self.window.saturating_sub(now.saturating_sub(self.opened));
        let (share, rest) = multiply_divide(self.previous, overlap.get(), self.window.get().max(1));
        self.current + share + u64::from(rest)
    }

    /// When nothing counts any more: for the previous count at the end of the window, for the
    /// current one a whole window later.
    fn gone(&self) -> Micros {
        let ends = self.opened.saturating_add(self.window);
        if self.current > 0 {
            ends.saturating_add(self.window)
        } else {
            ends
        }
    }
}

fn start_of_window(now: Micros, window: Micros) -> Micros {
    Micros::new(now.get() - now.get() % window.get().max(1))
}

/// `a * b / c` in whole numbers, and whether there is a remainder.
fn multiply_divide(a: u64, b: u64, c: u64) -> (u64, bool) {
    let (product, c) = (u128::from(a) * u128::from(b), u128::from(c));
    let whole = u64::try_from(product / c).unwrap_or(u64::MAX);
    (whole, product % c > 0)
}

impl Arithmetic for SlidingCounter {
    type State = State;

    /// Permits take up to two windows to come back, so time must not stand still for another whole
    /// window.
    fn repaired(&self, state: &State, now: Micros, action: &Action) -> Option<State> {
        let counts = state.counts(now);
        if counts.opened <= now {
            return None;
        }
        let latest = |windows: u64| {
            let us = self.window.get().saturating_mul(windows);
            now.saturating_add(Micros::new(us))
        };
        let used = counts.used(counts.opened);
        let is_kept_out = match action {
            Action::Acquire(acquire) if !fits(used, acquire.cost, self.limit) => {
                self.fits_from(&counts, acquire.cost) > latest(2)
            }
            _ => false,
        };
        let is_ahead = is_kept_out || counts.opened > latest(1);
        is_ahead.then(|| self.counted_at(&counts, now).into())
    }

    fn read(&self, state: &State, now: Micros, acquire: &Acquire) -> Reading {
        let counts = state.counts(now);
        let used = counts.used(now.max(counts.opened));
        if acquire.cost > 0 && fits(used, acquire.cost, self.limit) {
            return self.reading(&self.counted_anew(counts, now), now, acquire.cost);
        }
        // A look changes nothing: the old windows apply until permits are acquired.
        let reading = self.reading(&counts, now, 0);
        if acquire.cost == 0 {
            return reading;
        }
        Reading {
            fits: false,
            wait: self.fits_from(&counts, acquire.cost).saturating_sub(now),
            ..reading
        }
    }

    fn read_to_charge(&self, state: &State, now: Micros, permits: u64) -> Reading {
        self.reading(&self.counts(state, now), now, permits)
    }

    fn charge(&self, state: &mut State, now: Micros, permits: u64) {
        let mut counts = self.counts(state, now);
        counts.current = added(counts.current, permits);
        *state = counts.into();
    }

    /// Gives back in the windows in which the permits were counted, since others may have acquired
    /// permits under other rules.
    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        let mut counts = state.counts(now);
        let (permits, taken_at) = (action.permits(), action.taken_at());
        let permits = match taken_at {
            Some(at) if counts.window != self.window => self.still_count(permits, at, now),
            _ => permits,
        };
        let before = counts.opened.saturating_sub(counts.window);
        // Without a time, the current window's permits go first. Permits of a window before the
        // previous one have come back.
        let mut back = [0, 0];
        if taken_at.is_none_or(|at| at >= counts.opened) {
            back[0] = counts.current.min(permits);
        }
        if taken_at.is_none_or(|at| before <= at && at < counts.opened) {
            back[1] = counts.previous.min(permits - back[0]);
        }
        if back != [0, 0] {
            counts.current -= back[0];
            counts.previous -= back[1];
            *state = match counts.current + counts.previous {
                0 => State::default(),
                _ => counts.into(),
            };
        }
    }

    fn expires_at(state: &State) -> Micros {
        let kept = state.kept();
        kept.rolled(kept.opened).gone()
    }

    fn scale(&mut self, share: Share) {
        self.limit = share.of(self.limit);
    }

    fn quota(&self) -> (u64, Micros) {
        (self.limit, self.window)
    }

    fn left(&self, reading: &Reading, charged: u64) -> Left {
        let [used, gone_in] = reading.level;
        let gone_in = Micros::new(gone_in);
        let used = used.saturating_add(charged);
        let reset_after = if used == 0 {
            Micros::ZERO
        } else if charged > 0 && gone_in <= self.window {
            // The first permits of their window: their count is gone a whole window after its end.
            gone_in.saturating_add(self.window)
        } else {
            gone_in
        };
        Left::new(remaining(self.limit, used), reading.next, reset_after)
    }

    fn arguments(&self, action: &Action) -> Arguments {
        window_arguments(self.limit, self.window, action)
    }
}
