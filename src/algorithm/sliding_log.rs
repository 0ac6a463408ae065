//! Sliding log: at most `limit` permits in any interval of length `window`. Mirrors
//! `lua/sliding_log.lua`.
//!
//! Each charge has an entry: its instant, and the running total of permits up to it. What was used
//! within the window is the difference of two totals. So a charge of any cost is one entry, and
//! entries are never summed.

use std::collections::VecDeque;

use super::action::{Acquire, Action};
use super::arithmetic::{Arithmetic, Left};
use super::reading::{
    Arguments, Reading, Share, added, fits, remaining, too_many, until_forgotten, window_arguments,
};
use crate::limit::ValidLimit;
use crate::time::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlidingLog {
    limit: u64,
    window: Micros,
}

/// The part of a log that still counts.
struct Live {
    /// The effective instant: now, or the newest entry's if the clock stepped back behind it.
    now: Micros,
    /// The index of the oldest entry that counts; the number of entries if none does.
    first: usize,
    /// The running total before it.
    base: u64,
    /// The permits used.
    used: u64,
}

impl SlidingLog {
    pub(super) fn new(limit: &ValidLimit) -> Self {
        Self {
            limit: limit.permits,
            window: limit.period,
        }
    }

    fn live(&self, state: &State, now: Micros) -> Live {
        let Some(newest) = state.entries.back().filter(|_| now < state.expires) else {
            return Live {
                now,
                first: state.entries.len(),
                base: 0,
                used: 0,
            };
        };
        let now = now.max(newest.at);
        let first = state
            .entries
            .partition_point(|entry| self.lapsed(entry, now));
        let base = match first.checked_sub(1) {
            None => state.base,
            Some(before) => state.entries[before].total,
        };
        Live {
            now,
            first,
            base,
            used: permits_between(base, newest.total),
        }
    }

    fn lapsed(&self, entry: &Entry, now: Micros) -> bool {
        self.lapse(entry) <= now
    }

    /// When so many permits have lapsed. `None` if fewer are used.
    fn lapse_of(&self, state: &State, live: &Live, permits: u64) -> Option<Micros> {
        if permits > live.used {
            return None;
        }
        let enough = state.entries.partition_point(|entry| {
            self.lapsed(entry, live.now) || permits_between(live.base, entry.total) < permits
        });
        state.entries.get(enough).map(|entry| self.lapse(entry))
    }

    /// How long until `cost` fits: until enough entries have lapsed.
    fn wait(&self, state: &State, live: &Live, now: Micros, cost: u64) -> Micros {
        let too_many = live.used.saturating_add(cost).saturating_sub(self.limit);
        match self.lapse_of(state, live, too_many) {
            Some(lapse) => lapse.min(state.expires).saturating_sub(now),
            // Only a cost above the limit outlasts every entry.
            None => self.window,
        }
    }

    /// How long until there is a permit again, if none is left after these were acquired.
    fn next(&self, state: &State, live: &Live, now: Micros, permits: u64) -> Micros {
        match too_many(self.limit, added(live.used, permits)) {
            0 => Micros::ZERO,
            _ if permits == 0 => self.wait(state, live, now, 1),
            too_many => {
                let own = live.now.saturating_add(self.window);
                let lapse = self.lapse_of(state, live, too_many);
                lapse.unwrap_or(own).saturating_sub(now)
            }
        }
    }

    fn lapse(&self, entry: &Entry) -> Micros {
        entry.at.saturating_add(self.window)
    }

    /// The reading for a caller that takes these permits; the log is then kept for this limit's
    /// window.
    fn reading(&self, state: &State, live: &Live, now: Micros, permits: u64) -> Reading {
        let newest = state.entries.back().filter(|_| live.used > 0);
        let empty = newest.map_or(Micros::ZERO, |newest| self.lapse(newest));
        Reading {
            fits: true,
            wait: Micros::ZERO,
            level: [live.used, empty.saturating_sub(now).get()],
            next: self.next(state, live, now, permits),
            at: now,
        }
    }
}

impl Arithmetic for SlidingLog {
    type State = State;

    fn repaired(&self, state: &State, now: Micros, _: &Action) -> Option<State> {
        let newest = state.entries.back()?;
        let is_ahead = newest.at > now.saturating_add(self.window);
        is_ahead.then(|| state.logged_by(now, self.window))
    }

    fn read(&self, state: &State, now: Micros, acquire: &Acquire) -> Reading {
        let live = self.live(state, now);
        let reading = |permits| self.reading(state, &live, now, permits);
        if acquire.cost == 0 {
            return until_forgotten(reading(0), state.expires);
        }
        if fits(live.used, acquire.cost, self.limit) {
            return reading(acquire.cost);
        }
        Reading {
            fits: false,
            wait: self.wait(state, &live, now, acquire.cost),
            ..until_forgotten(reading(0), state.expires)
        }
    }

    fn read_to_charge(&self, state: &State, now: Micros, permits: u64) -> Reading {
        self.reading(state, &self.live(state, now), now, permits)
    }

    fn charge(&self, state: &mut State, now: Micros, permits: u64) {
        let live = self.live(state, now);
        state.entries.drain(..live.first);
        state.base = live.base;
        state.entries.push_back(Entry {
            at: live.now,
            total: (live.base + added(live.used, permits)) % TOTALS,
        });
        state.expires = live.now.saturating_add(self.window);
    }

    /// Gives back the permits acquired at that instant, as if they had never been acquired. If the
    /// instant is unknown, or many others were acquired since, gives back the oldest ones, so that
    /// those that remain lapse no earlier.
    ///
    /// The caller's limit may differ from that of others. So permits that have lapsed only by the
    /// caller's window stay, and the log keeps the window it was charged with.
    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        let live = self.live(state, now);
        let taken_at = action.taken_at();
        let charged = state.window();
        let shorter = self.window.min(charged);
        let has_lapsed = taken_at.is_some_and(|at| at.saturating_add(shorter) <= live.now);
        let back = live.used.min(action.permits());
        if has_lapsed || back == 0 {
            return;
        }
        let known = taken_at.and_then(|at| state.taken_at(at));
        match known.filter(|entry| *entry >= live.first) {
            Some(entry) => {
                let up_to = permits_between(live.base, state.entries[entry].total);
                state.give_back_of(entry, back.min(up_to));
            }
            None => {
                let window = self.window.max(charged);
                let live = Self { window, ..*self }.live(state, now);
                state.give_back_oldest(live.base, back);
            }
        }
        state.end_with_newest(charged, now);
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
        let empty_in = Micros::new(empty_in);
        // If the clock stepped back, a charge is entered at the newest entry's instant.
        let reset_after = if charged == 0 {
            empty_in
        } else {
            empty_in.max(self.window)
        };
        let used = used.saturating_add(charged);
        Left::new(remaining(self.limit, used), reading.next, reset_after)
    }

    fn arguments(&self, action: &Action) -> Arguments {
        window_arguments(self.limit, self.window, action)
    }
}

/// Running totals wrap here: above what can be used in one window (10^15), and the sum of both is
/// below 2^53.
pub(super) const TOTALS: u64 = 1 << 52;

/// The entry whose permits are given back is searched among this many of the newest ones.
const MOST_BEHIND: usize = 32;

#[derive(Clone, Debug, Default)]
pub(in crate::algorithm) struct State {
    /// When the newest entry lapses, by the window it was charged with. From then on a store may
    /// forget the log; storing this makes the answer the same whether or not it did.
    pub(super) expires: Micros,
    /// The running total before the oldest entry.
    pub(super) base: u64,
    /// Oldest first.
    pub(super) entries: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) at: Micros,
    pub(super) total: u64,
}

impl State {
    /// The newest entry at or before that instant. `None` if it is not among the newest: all
    /// entries after it have to be rewritten.
    pub(super) fn taken_at(&self, at: Micros) -> Option<usize> {
        let mut newest = self.entries.iter().enumerate().rev().take(MOST_BEHIND);
        let found = newest.find(|(_, entry)| entry.at <= at);
        found.map(|(position, _)| position)
    }

    /// The window that the newest entry was charged with.
    pub(super) fn window(&self) -> Micros {
        let newest = self.entries.back();
        newest.map_or(Micros::ZERO, |newest| {
            self.expires.saturating_sub(newest.at)
        })
    }

    /// Makes the log expire when its newest entry, which may have changed, lapses by this window.
    /// Clears a log that has expired.
    pub(super) fn end_with_newest(&mut self, window: Micros, now: Micros) {
        let newest = self.entries.back();
        self.expires = newest.map_or(Micros::ZERO, |newest| newest.at.saturating_add(window));
        if self.expires <= now {
            *self = Self::default();
        }
    }

    /// The same log, where all that was logged after `now` has been logged then, by this window.
    pub(super) fn logged_by(&self, now: Micros, window: Micros) -> Self {
        let before = self.entries.partition_point(|entry| entry.at <= now);
        let mut entries: VecDeque<_> = self.entries.range(..before).copied().collect();
        let total = self.entries.back().map(|newest| newest.total);
        entries.extend(total.map(|total| Entry { at: now, total }));
        Self {
            expires: now.saturating_add(window),
            base: self.base,
            entries,
        }
    }

    /// Gives back this many permits of this entry, and then of those before it. There must be as
    /// many.
    pub(super) fn give_back_of(&mut self, entry: usize, back: u64) {
        let base = self.base;
        let left = permits_between(base, self.entries[entry].total) - back;
        let whole = self
            .entries
            .partition_point(|entry| permits_between(base, entry.total) <= left);
        // The next entry keeps the rest of the permits, if there is a rest.
        let before = whole
            .checked_sub(1)
            .map_or(base, |last| self.entries[last].total);
        let mut first = whole;
        if permits_between(base, before) < left {
            self.entries[whole].total = (base + left) % TOTALS;
            first += 1;
        }
        for behind in self.entries.range_mut(entry + 1..) {
            behind.total = (base + permits_between(base, behind.total) - back) % TOTALS;
        }
        self.entries.drain(first..=entry);
    }

    /// Gives back this many of the permits after this running total, and drops those before it.
    pub(super) fn give_back_oldest(&mut self, total: u64, back: u64) {
        let base = self.base;
        let gone = permits_between(base, total) + back;
        let whole = self
            .entries
            .partition_point(|entry| permits_between(base, entry.total) <= gone);
        self.entries.drain(..whole);
        self.base = (base + gone) % TOTALS;
    }
}

pub(super) fn permits_between(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) % TOTALS
}
