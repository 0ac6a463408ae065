//! The log itself, and how permits are given back in it.

use std::collections::VecDeque;

use crate::time::Micros;

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
        let left = taken(base, self.entries[entry].total) - back;
        let whole = self
            .entries
            .partition_point(|entry| taken(base, entry.total) <= left);
        // The next entry keeps the rest of the permits, if there is a rest.
        let before = whole
            .checked_sub(1)
            .map_or(base, |last| self.entries[last].total);
        let mut first = whole;
        if taken(base, before) < left {
            self.entries[whole].total = (base + left) % TOTALS;
            first += 1;
        }
        for behind in self.entries.range_mut(entry + 1..) {
            behind.total = (base + taken(base, behind.total) - back) % TOTALS;
        }
        self.entries.drain(first..=entry);
    }

    /// Gives back this many of the permits after this running total, and drops those before it.
    pub(super) fn give_back_oldest(&mut self, total: u64, back: u64) {
        let base = self.base;
        let gone = taken(base, total) + back;
        let whole = self
            .entries
            .partition_point(|entry| taken(base, entry.total) <= gone);
        self.entries.drain(..whole);
        self.base = (base + gone) % TOTALS;
    }
}

pub(super) fn taken(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) % TOTALS
}
