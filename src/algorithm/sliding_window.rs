//! Sliding window: at most `limit` permits in any interval of length `window`, counted in slices.
//! Mirrors `lua/sliding_window.lua`.
//!
//! Slices start at multiples of their length since the epoch. All permits of a slice count until a
//! whole window after its end, as if they had been acquired in its last moment.

use std::collections::VecDeque;

use super::action::{Acquire, Action};
use super::arithmetic::{Arithmetic, Left};
use super::reading::{
    Arguments, Reading, Share, added, fits, padded, remaining, too_many, until_forgotten,
};
use crate::limit::{MOST_PERMITS, ValidLimit};
use crate::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlidingWindow {
    limit: u64,
    window: Micros,
    slice: Micros,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// When the newest slice lapses, by the window it was charged with; see the sliding log.
    expires: Micros,
    /// Oldest first; only slices in which permits were acquired.
    slices: VecDeque<Slice>,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    ends: Micros,
    used: u64,
}

impl SlidingWindow {
    pub(super) fn new(limit: &ValidLimit) -> Self {
        let slice = limit.period.get().div_ceil(limit.slices.into());
        Self {
            limit: limit.permits,
            window: limit.period,
            slice: Micros::new(slice),
        }
    }

    /// The slices that still count.
    fn live<'a>(&self, state: &'a State, now: Micros) -> impl Iterator<Item = &'a Slice> + Clone {
        let (forgotten, window) = (now >= state.expires, self.window);
        let slices = state.slices.iter();
        slices.filter(move |slice| !forgotten && slice.ends.saturating_add(window) > now)
    }

    fn used(&self, state: &State, now: Micros) -> u64 {
        self.live(state, now).map(|slice| slice.used).sum()
    }

    fn drop_lapsed(&self, state: &mut State, now: Micros) {
        let lapsed = state.slices.len() - self.live(state, now).count();
        state.slices.drain(..lapsed);
    }

    /// The end of the slice that contains an instant.
    fn end_of_slice(&self, at: Micros) -> Micros {
        let into = at.get() % self.slice.get();
        Micros::new(at.get() - into).saturating_add(self.slice)
    }

    fn lapse(&self, slice: &Slice) -> Micros {
        slice.ends.saturating_add(self.window)
    }

    /// The reading for a caller that takes these permits; the slices are then kept for this limit's
    /// window.
    fn reading(&self, state: &State, now: Micros, permits: u64) -> Reading {
        let newest = self.live(state, now).last();
        let empty = newest.map_or(Micros::ZERO, |slice| self.lapse(slice));
        let used = self.used(state, now);
        Reading {
            fits: true,
            wait: Micros::ZERO,
            level: [used, empty.saturating_sub(now).get()],
            next: self.next(state, now, used, permits),
            at: now,
        }
    }

    /// When so many permits have lapsed. `None` if fewer are used.
    fn lapse_of(&self, state: &State, now: Micros, permits: u64) -> Option<Micros> {
        let mut freed = 0;
        let enough = self.live(state, now).find(|slice| {
            freed += slice.used;
            freed >= permits
        });
        enough.map(|slice| self.lapse(slice))
    }

    /// How long until enough slices have lapsed.
    fn wait(&self, state: &State, now: Micros, too_many: u64) -> Micros {
        match self.lapse_of(state, now, too_many) {
            Some(lapse) => lapse.min(state.expires).saturating_sub(now),
            // Only a cost above the limit outlasts every slice.
            None => self.window,
        }
    }

    /// How long until there is a permit again, if none is left after these were acquired.
    fn next(&self, state: &State, now: Micros, used: u64, permits: u64) -> Micros {
        match too_many(self.limit, added(used, permits)) {
            0 => Micros::ZERO,
            too_many if permits == 0 => self.wait(state, now, too_many),
            too_many => {
                let newest = state.slices.back().map_or(Micros::ZERO, |slice| slice.ends);
                let own = self.end_of_slice(now).max(newest);
                let lapse = self.lapse_of(state, now, too_many);
                let own = own.saturating_add(self.window);
                lapse.unwrap_or(own).saturating_sub(now)
            }
        }
    }
}

impl State {
    /// The window that the newest slice was charged with.
    fn window(&self) -> Micros {
        let ends = self.slices.back().map(|newest| newest.ends);
        ends.map_or(Micros::ZERO, |ends| self.expires.saturating_sub(ends))
    }

    /// Makes the state expire when its newest slice lapses by this window.
    fn end_with_newest(&mut self, window: Micros) {
        let ends = self.slices.back().map(|newest| newest.ends);
        self.expires = ends.map_or(Micros::ZERO, |ends| ends.saturating_add(window));
    }
}

impl Arithmetic for SlidingWindow {
    type State = State;

    fn repaired(&self, state: &State, now: Micros, action: &Action) -> Option<State> {
        let newest = state.slices.back()?;
        // Nearly always, and whatever the action.
        if newest.ends <= now.saturating_add(self.window) {
            return None;
        }
        // No slice is longer than its window. A slice of a longer window need not come from a clock
        // that was ahead, and stays until permits are acquired by this window.
        let takes = match action {
            Action::Acquire(acquire) => {
                acquire.cost > 0 && fits(self.used(state, now), acquire.cost, self.limit)
            }
            action => action.acquires() > 0,
        };
        let window = if takes {
            self.window
        } else {
            self.window.max(state.window())
        };
        if newest.ends <= now.saturating_add(window) {
            return None;
        }
        let ends = self.end_of_slice(now);
        let before = state.slices.partition_point(|slice| slice.ends < ends);
        let used = state.slices.range(before..).map(|slice| slice.used).sum();
        let mut slices: VecDeque<_> = state.slices.range(..before).copied().collect();
        slices.push_back(Slice { ends, used });
        let expires = ends.saturating_add(self.window);
        Some(State { expires, slices })
    }

    fn read(&self, state: &State, now: Micros, acquire: &Acquire) -> Reading {
        let looked = || until_forgotten(self.reading(state, now, 0), state.expires);
        if acquire.cost == 0 {
            return looked();
        }
        let used = self.used(state, now);
        if fits(used, acquire.cost, self.limit) {
            return self.reading(state, now, acquire.cost);
        }
        let wanted = used.saturating_add(acquire.cost);
        Reading {
            fits: false,
            wait: self.wait(state, now, wanted - self.limit),
            ..looked()
        }
    }

    fn read_to_charge(&self, state: &State, now: Micros, permits: u64) -> Reading {
        self.reading(state, now, permits)
    }

    fn charge(&self, state: &mut State, now: Micros, permits: u64) {
        let permits = permits.min(MOST_PERMITS.saturating_sub(self.used(state, now)));
        if permits == 0 {
            return;
        }
        self.drop_lapsed(state, now);
        let ends = self.end_of_slice(now);
        match state.slices.back_mut() {
            // Also if the clock stepped back, or slices were made shorter.
            Some(newest) if newest.ends >= ends => newest.used += permits,
            _ => state.slices.push_back(Slice {
                ends,
                used: permits,
            }),
        }
        state.end_with_newest(self.window);
    }

    /// Gives back permits of the slice in which they were acquired, and then of those before it; the
    /// oldest ones if the instant is unknown, as in the sliding log. As there, the state keeps the
    /// window it was charged with, and permits that have lapsed only by this limit's window.
    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        let taken_in = action.taken_at().map(|at| self.end_of_slice(at));
        let charged = state.window();
        let shorter = self.window.min(charged);
        let has_lapsed = taken_in.is_some_and(|ends| ends.saturating_add(shorter) <= now);
        let mut back = self.used(state, now).min(action.permits());
        if back == 0 || has_lapsed {
            return;
        }
        let mut give_back = |slice: &mut Slice| {
            let given = back.min(slice.used);
            slice.used -= given;
            back -= given;
        };
        let first = state.slices.len() - self.live(state, now).count();
        let ends = taken_in.unwrap_or(Micros::ZERO);
        match state.slices.partition_point(|slice| slice.ends <= ends) {
            up_to if up_to <= first => state.slices.range_mut(first..).for_each(&mut give_back),
            up_to => {
                let up_to = state.slices.range_mut(first..up_to);
                up_to.rev().for_each(&mut give_back);
            }
        }
        state.slices.retain(|slice| slice.used > 0);
        state.end_with_newest(charged);
        if state.expires <= now {
            *state = State::default();
        }
    }

    fn expires_at(state: &State) -> Micros {
        state.expires
    }

    fn scale(&mut self, share: Share) {
        self.limit = share.of(self.limit);
    }

    fn quota(&self) -> (u64, Micros) {
        (self.limit, self.window)
    }

    fn left(&self, reading: &Reading, charged: u64) -> Left {
        let [used, empty_in] = reading.level;
        let mut empty_in = Micros::new(empty_in);
        if charged > 0 {
            let lapses = self.end_of_slice(reading.at).saturating_add(self.window);
            empty_in = empty_in.max(lapses.saturating_sub(reading.at));
        }
        let remaining = remaining(self.limit, added(used, charged));
        Left::new(remaining, reading.next, empty_in)
    }

    fn arguments(&self, action: &Action) -> Arguments {
        padded([
            action.permits(),
            self.limit,
            self.window.get(),
            action.taken_us(),
            self.slice.get(),
        ])
    }
}
