//! The state of a fixed window. Apart from the algorithm, as its calendar reads it too.

use crate::time::{DAY, Micros};

/// A window and the permits taken in it; a window that has ended for a key that was never used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) opened: Micros,
    pub(super) ends: Micros,
    /// Twice the permits taken, and one more of a window by a calendar: beside them that takes no room
    /// of its own, and there are many.
    used_and_by_calendar: u64,
}

impl State {
    pub(super) fn new(opened: Micros, ends: Micros, used: u64) -> Self {
        Self {
            opened,
            ends,
            used_and_by_calendar: used << 1,
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used_and_by_calendar >> 1
    }

    pub(super) fn is_by_calendar(&self) -> bool {
        self.used_and_by_calendar & 1 == 1
    }

    #[must_use]
    pub(super) fn by_calendar(mut self, by_calendar: bool) -> Self {
        self.used_and_by_calendar = self.used() << 1 | u64::from(by_calendar);
        self
    }

    #[must_use]
    pub(super) fn with_used(mut self, used: u64) -> Self {
        self.used_and_by_calendar = used << 1 | u64::from(self.is_by_calendar());
        self
    }

    #[must_use]
    pub(super) fn ending(mut self, ends: Micros) -> Self {
        self.ends = ends;
        self
    }

    /// When it is forgotten: when it ends, and a window by a calendar when no boundary can be taken
    /// for its end any more.
    pub(super) fn kept_until(&self) -> Micros {
        match self.is_by_calendar() {
            true => (self.ends).saturating_add(slack(self.ends.saturating_sub(self.opened))),
            false => self.ends,
        }
    }
}

/// For windows of this length: instants that are no further apart are one boundary by different rules
/// for a time zone.
pub(super) fn slack(length: Micros) -> Micros {
    Micros::new(length.get() / 2).min(DAY.into())
}
