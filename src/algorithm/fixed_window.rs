//! Fixed window: at most `limit` permits in each window. Mirrors `lua/fixed_window.lua`.
//!
//! The state says when its window ends, so that nothing depends on when the store expires the key.
//! It also says when the window opened, so that a window that was made shorter ends earlier at
//! once.

use super::action::{Acquire, Action};
use super::arithmetic::{Arithmetic, Left};
use super::calendar::ByCalendar;
use super::reading::{Arguments, Reading, Share, added, fits, padded, remaining};
use super::window::State;
use crate::decision::Decision;
use crate::limit::ValidLimit;
use crate::time::{DAY, Micros};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FixedWindow {
    limit: u64,
    /// Of a calendar, a length that no window exceeds.
    window: Micros,
    opens: Opens,
}

/// When a window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    WithRequest,
    /// At multiples of its length.
    Aligned {
        /// By how much the clock by which windows are aligned is ahead of the one that decides, less
        /// whole windows.
        ahead: Micros,
    },
    ByCalendar(ByCalendar),
}

impl FixedWindow {
    pub(super) fn new(limit: &ValidLimit) -> Self {
        Self {
            limit: limit.permits,
            window: limit.period,
            opens: match limit.schedule {
                Some(schedule) => Opens::ByCalendar(ByCalendar::new(schedule)),
                None if limit.aligned => Opens::Aligned {
                    ahead: Micros::ZERO,
                },
                None => Opens::WithRequest,
            },
        }
    }

    /// The same, aligned by a clock that shows `wall` at `now`. The window that is open then ends as
    /// it would have: only those behind it begin elsewhere. But a calendar's boundaries move.
    #[cfg(any(feature = "memory", feature = "redis"))]
    pub(super) fn aligned_by(self, wall: Micros, now: Micros) -> Self {
        let opens = match self.opens {
            Opens::WithRequest => Opens::WithRequest,
            Opens::Aligned { .. } => {
                let into = |at: Micros| at.get() % self.window.get();
                let ahead = (into(wall) + self.window.get() - into(now)) % self.window.get();
                Opens::Aligned {
                    ahead: Micros::new(ahead),
                }
            }
            Opens::ByCalendar(calendar) => Opens::ByCalendar(calendar.placed_by(wall, now)),
        };
        Self { opens, ..self }
    }

    /// Whether windows begin where a clock says, not a request.
    pub(super) fn is_aligned(&self) -> bool {
        self.opens != Opens::WithRequest
    }

    #[cfg(feature = "redis")]
    pub(super) fn is_by_calendar(&self) -> bool {
        matches!(self.opens, Opens::ByCalendar(_))
    }

    /// The window that a request at `now` belongs to.
    fn current(&self, state: &State, now: Micros) -> State {
        if let Opens::ByCalendar(calendar) = &self.opens {
            return calendar.around(now).current(state, now);
        }
        let ends = state.ends.min(state.opened.saturating_add(self.window));
        // If the clock stepped back to before the window opened, this still counts in it.
        if now < ends {
            return state.ending(ends).by_calendar(false);
        }
        let into = match self.opens {
            Opens::Aligned { ahead } => now.saturating_add(ahead).get() % self.window.get(),
            _ => 0,
        };
        self.opened(now.saturating_sub(Micros::new(into)), 0)
    }

    fn opened(&self, opened: Micros, used: u64) -> State {
        State::new(opened, opened.saturating_add(self.window), used)
    }
}

impl Arithmetic for FixedWindow {
    type State = State;

    /// An aligned window also lasts for its whole length from now: if it ended at the next multiple
    /// of that, its permits would come back too soon.
    #[inline]
    fn repaired(&self, state: &State, now: Micros, _: &Action) -> Option<State> {
        if let Opens::ByCalendar(calendar) = &self.opens {
            let around = calendar.around(now);
            let is_ahead = state.opened > now.saturating_add(around.length());
            return is_ahead.then(|| around.repaired(state.used()));
        }
        let is_ahead = state.opened > now.saturating_add(self.window);
        is_ahead.then(|| self.opened(now, state.used()))
    }

    fn read(&self, state: &State, now: Micros, acquire: &Acquire) -> Reading {
        let current = self.current(state, now);
        let fits = fits(current.used(), acquire.cost, self.limit);
        let ends_in = current.ends.saturating_sub(now);
        Reading {
            fits,
            wait: if fits { Micros::ZERO } else { ends_in },
            level: [current.used(), ends_in.get()],
            next: Micros::ZERO,
            at: now,
        }
    }

    fn charge(&self, state: &mut State, now: Micros, permits: u64) {
        *state = self.current(state, now);
        *state = state.with_used(added(state.used(), permits));
    }

    /// Gives back in the window in which the permits were counted, without changing its end, since
    /// others may have acquired permits under other rules.
    fn adjust(&self, state: &mut State, now: Micros, action: &Action) {
        let was_taken_in_it = match action {
            Action::Credit { taken_at, .. } => taken_at.is_none_or(|taken| taken >= state.opened),
            action => (action.receipt()).is_none_or(|receipt| receipt.mark == mark(state.ends)),
        };
        // Permits of an earlier window came back when it ended.
        let back = state.used().min(action.permits());
        if back == 0 || !was_taken_in_it || now >= state.ends {
            return;
        }
        *state = state.with_used(state.used() - back);
        // Nobody uses this window: the next request opens a new one. But where a window by a calendar
        // has begun, by whichever rules, is known by its state.
        if state.used() == 0 && !state.is_by_calendar() {
            *state = State::default();
        }
    }

    fn expires_at(state: &State) -> Micros {
        state.kept_until()
    }

    fn scale(&mut self, share: Share) {
        self.limit = share.of(self.limit);
    }

    fn quota(&self) -> (u64, Micros) {
        match &self.opens {
            Opens::ByCalendar(calendar) => (self.limit, calendar.length(None)),
            _ => (self.limit, self.window),
        }
    }

    fn quota_of(&self, reading: &Reading) -> (u64, Micros) {
        let [_, ends_in] = reading.level;
        match &self.opens {
            // The remembered state has no instant.
            Opens::ByCalendar(calendar) if reading.at >= DAY.into() => {
                let ends = reading.at.saturating_add(Micros::new(ends_in));
                (self.limit, calendar.length(Some(ends)))
            }
            _ => self.quota(),
        }
    }

    fn left(&self, reading: &Reading, charged: u64) -> Left {
        let [used, ends_in] = reading.level;
        let used = used.saturating_add(charged);
        let reset_after = if used == 0 { 0 } else { ends_in };
        Left {
            renews_after: Micros::new(ends_in),
            renews_whole: true,
            mark: mark(reading.at.saturating_add(Micros::new(ends_in))),
            ..Left::new(
                remaining(self.limit, used),
                reading.next,
                Micros::new(reset_after),
            )
        }
    }

    fn arguments(&self, action: &Action) -> Arguments {
        let [window, opens, behind] = match &self.opens {
            Opens::WithRequest => [self.window.get(), 0, 0],
            Opens::Aligned { .. } => [self.window.get(), 1, 0],
            Opens::ByCalendar(calendar) => {
                let brought = calendar.brought();
                [brought.length(), brought.next(), brought.length_behind()].map(Micros::get)
            }
        };
        padded([
            action.permits(),
            self.limit,
            window,
            action.taken_us(),
            opens,
            // Zero means no receipt, and no window ends at one.
            action.receipt().map_or(0, |receipt| receipt.mark[0].max(1)),
            behind,
        ])
    }

    fn level(&self, decision: &Decision) -> [u64; 2] {
        let used = self.limit.saturating_sub(decision.remaining);
        [used, decision.renews_after.get()]
    }

    /// Within the window nothing comes back, so any cost can be decided.
    fn later(
        &self,
        reading: &Reading,
        _: u64,
        elapsed: Micros,
        acquire: &Acquire,
    ) -> Option<Reading> {
        let [used, ends_in] = reading.level;
        // A window that the next request opens is whole at any time.
        let is_open = self.is_aligned() || used > 0 || ends_in < self.window.get();
        let gone = if is_open { elapsed.get() } else { 0 };
        let ends_in = ends_in.checked_sub(gone).filter(|left| *left > 0)?;
        let ends_in = Micros::new(ends_in);
        let fits = fits(used, acquire.cost, self.limit);
        Some(Reading {
            fits,
            wait: if fits { Micros::ZERO } else { ends_in },
            level: [used, ends_in.get()],
            next: Micros::ZERO,
            at: reading.at.saturating_add(elapsed),
        })
    }
}

/// The mark of permits acquired in the window with this end.
fn mark(ends: Micros) -> [u64; 2] {
    [ends.get(), 0]
}
