//! Which window of a calendar a request belongs to: [`FixedWindow`](super::fixed_window) with
//! boundaries that are given. Mirrors `lua/fixed_window.lua`.
//!
//! Processes may have other rules for a time zone, so that they bring other instants for the same
//! boundary. No boundary opens two windows nevertheless:
//!
//! - A boundary that is brought ends the open window if it is earlier than its end, but not if it is
//!   so near to its opening that it is the one at which the window opened.
//! - A new window begins where the one before it has ended, and ends at the first boundary that is
//!   not as near to that.
//! - The state is kept for as long behind its end.

use super::window::{State, slack};
use crate::limit::Schedule;
use crate::time::{Micros, SECOND};

#[derive(Clone, Copy, Debug)]
pub(super) struct ByCalendar {
    schedule: &'static Schedule,
    /// What the clock of the calendar shows when the one that decides shows `now`.
    wall: Micros,
    now: Micros,
}

/// The boundaries around an instant: the last, the next and the next but one.
#[derive(Clone, Copy)]
pub(super) struct Around {
    last: Micros,
    next: Micros,
    after: Micros,
}

impl ByCalendar {
    /// For clocks that show the same.
    pub(super) fn new(schedule: &'static Schedule) -> Self {
        Self {
            schedule,
            wall: Micros::ZERO,
            now: Micros::ZERO,
        }
    }

    #[cfg(any(feature = "memory", feature = "redis"))]
    pub(super) fn placed_by(self, wall: Micros, now: Micros) -> Self {
        Self { wall, now, ..self }
    }

    /// The boundaries around `now`, on the clock that decides.
    pub(super) fn around(&self, now: Micros) -> Around {
        let wall = now.saturating_add(self.wall).saturating_sub(self.now);
        let [last, next, after] = self.schedule.around(wall);
        let here = |at: Micros| at.saturating_add(self.now).saturating_sub(self.wall);
        Around {
            last: here(last),
            next: here(next),
            after: here(after),
        }
    }

    /// Those around the time of the process, which a script takes.
    pub(super) fn brought(&self) -> Around {
        self.around(self.now)
    }

    /// The length of the window in which one with this end is open; without an instant, that of the
    /// latest one.
    pub(super) fn length(&self, ends: Option<Micros>) -> Micros {
        let [last, next, _] = match ends {
            // Clocks that are no more than this apart do not take the window behind it.
            Some(ends) => {
                let around = self.around(ends.saturating_sub(SECOND.into()));
                [around.last, around.next, around.after]
            }
            None => self.schedule.latest(),
        };
        next.saturating_sub(last)
    }
}

/// Clocks make no other rules: what is known of a key is known at any time.
impl PartialEq for ByCalendar {
    fn eq(&self, other: &Self) -> bool {
        self.schedule == other.schedule
    }
}

impl Eq for ByCalendar {}

impl Around {
    pub(super) fn next(&self) -> Micros {
        self.next
    }

    /// The length of the window that is open.
    pub(super) fn length(&self) -> Micros {
        self.next.saturating_sub(self.last)
    }

    /// The length of the window behind it.
    pub(super) fn length_behind(&self) -> Micros {
        self.after.saturating_sub(self.next)
    }

    /// The window that a request at `now` belongs to.
    pub(super) fn current(&self, state: &State, now: Micros) -> State {
        let slack = slack(self.length());
        // What is no longer kept may have been forgotten.
        let (before, is_kept) = match now < state.kept_until() {
            true => (*state, true),
            false => (State::default(), false),
        };
        let is_behind =
            |boundary: Micros, opening: Micros| boundary > opening.saturating_add(slack);
        // Where two clocks decide, they differ by less than a second from one moment to the next.
        let ends_it = |boundary: &Micros| {
            is_behind(*boundary, before.opened)
                && boundary.saturating_add(SECOND.into()) <= before.ends
        };
        let earlier = [self.last, self.next].into_iter().find(ends_it);
        let ends = earlier.unwrap_or(before.ends);
        if now < ends {
            return before.ending(ends).by_calendar(true);
        }
        let opened = match is_kept {
            true => self.last.max(ends),
            false => self.last,
        };
        let ends = match is_behind(self.next, opened) {
            true => self.next,
            false => self.after,
        };
        State::new(opened, ends, 0).by_calendar(true)
    }

    /// The window that begins here in place of one by a clock that was ahead.
    pub(super) fn repaired(&self, used: u64) -> State {
        State::new(self.last, self.next, used).by_calendar(true)
    }
}
