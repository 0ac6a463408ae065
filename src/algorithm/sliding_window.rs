//! Sliding window: at most `limit` permits in any interval of length `window`, counted in slices.
//! Mirrors `lua/sliding_window.lua`.
//!
//! Slices start at multiples of their length since the epoch. All permits of a slice count until a
//! whole window after its end, as if they had been taken in its last moment.

use std::collections::VecDeque;

use super::counting::{added, fits, padded, remaining, until_forgotten};
use super::{Action, Arguments, Arithmetic, Left, Reading, Share, Take};
use crate::limit::SoundLimit;
use crate::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlidingWindow {
    limit: u32,
    window: Micros,
    slice: Micros,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// When the newest slice lapses, by the window it was charged with; see the sliding log.
    expires: Micros,
    /// Oldest first; only slices in which permits were taken.
    slices: VecDeque<Slice>,
}

#[derive(Clone, Copy, Debug)]
struct Slice {
    ends: Micros,
    used: u64,
}

impl SlidingWindow {
    pub(super) fn new(limit: &SoundLimit) -> Self {
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

    /// The reading for a caller that takes permits; the slices are then kept for this limit's
    /// window.
    fn reading(&self, state: &State, now: Micros) -> Reading {
        let newest = self.live(state, now).last();
        let empty = newest.map_or(Micros::ZERO, |slice| self.lapse(slice));
        Reading {
            fits: true,
            wait: Micros::ZERO,
            level: [self.used(state, now), empty.saturating_sub(now).get()],
            at: now,
        }
    }

    /// How long until `cost` fits: until enough slices have lapsed.
    fn wait(&self, state: &State, now: Micros, too_many: u64) -> Micros {
        let mut freed = 0;
        let enough = self.live(state, now).find(|slice| {
            freed += slice.used;
            freed >= too_many
        });
        match enough {
            Some(slice) => self.lapse(slice).min(state.expires).saturating_sub(now),
            // Only a cost above the limit outlasts every slice.
            None => self.window,
        }
    }
}

impl State {
    /// The window that the newest slice was charged with.
    fn window(&self) -> Micros {
        let window = |newest: &Slice| self.expires.saturating_sub(newest.ends);
        self.slices.back().map_or(Micros::ZERO, window)
    }

    /// Makes the state expire when its newest slice lapses by this window.
    fn end_with_newest(&mut self, window: Micros) {
        let lapse = |newest: &Slice| newest.ends.saturating_add(window);
        self.expires = self.slices.back().map_or(Micros::ZERO, lapse);
    }
}

impl Arithmetic for SlidingWindow {
    type State = State;

    fn read(&self, state: &State, now: Micros, take: &Take) -> Reading {
        let reading = self.reading(state, now);
        if take.cost == 0 {
            return until_forgotten(reading, state.expires);
        }
        let [used, _] = reading.level;
        if fits(used, take.cost, self.limit) {
            return reading;
        }
        let wanted = used + u64::from(take.cost);
        Reading {
            fits: false,
            wait: self.wait(state, now, wanted - u64::from(self.limit)),
            ..until_forgotten(reading, state.expires)
        }
    }

    fn read_to_charge(&self, state: &State, now: Micros) -> Reading {
        self.reading(state, now)
    }

    fn charge(&self, state: &mut State, now: Micros, permits: u32) {
        let room = u64::from(u32::MAX) - self.used(state, now).min(u32::MAX.into());
        let permits = u64::from(permits).min(room);
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

    /// Gives back permits of the slice in which they were taken, and then of those before it; the
    /// oldest ones if the instant is unknown, as in the sliding log. As there, the state keeps the
    /// window it was charged with, and permits that have lapsed only by this limit's window.
    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        let taken_in = action.taken_at().map(|at| self.end_of_slice(at));
        let charged = state.window();
        let shorter = self.window.min(charged);
        let has_lapsed = taken_in.is_some_and(|ends| ends.saturating_add(shorter) <= now);
        let mut back = self.used(state, now).min(action.permits().into());
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

    fn quota(&self) -> (u32, Micros) {
        (self.limit, self.window)
    }

    fn left(&self, reading: &Reading, charged: u32) -> Left {
        let [used, empty_in] = reading.level;
        let mut empty_in = Micros::new(empty_in);
        if charged > 0 {
            let lapses = self.end_of_slice(reading.at).saturating_add(self.window);
            empty_in = empty_in.max(lapses.saturating_sub(reading.at));
        }
        Left::all_after(remaining(self.limit, added(used, charged)), empty_in)
    }

    fn arguments(&self, action: &Action) -> Arguments {
        padded([
            action.permits().into(),
            self.limit.into(),
            self.window.get(),
            action.taken_us(),
            self.slice.get(),
        ])
    }
}
