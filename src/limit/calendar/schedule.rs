//! `Schedule`: when the windows of a calendar begin. What was computed last is kept, so that it is
//! computed once a window and not for each request.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};
use std::{fmt, ptr};

use arc_swap::ArcSwap;

use super::Calendar;
use crate::time::{Clock as _, Micros, SystemClock};

/// Kept as long as the process lives, as its zone is, so that an algorithm can be copied.
pub(crate) struct Schedule {
    calendar: Calendar,
    latest: ArcSwap<[Micros; 3]>,
}

static SCHEDULES: LazyLock<RwLock<HashMap<Calendar, &'static Schedule>>> =
    LazyLock::new(RwLock::default);

impl Schedule {
    pub(super) fn of(calendar: Calendar) -> &'static Self {
        let known = SCHEDULES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(schedule) = known.get(&calendar) {
            return schedule;
        }
        drop(known);
        let mut known = SCHEDULES.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(calendar).or_insert_with(|| {
            let now = calendar.boundaries(SystemClock.wall_clock());
            Box::leak(Box::new(Self {
                calendar,
                latest: ArcSwap::from_pointee(now),
            }))
        })
    }

    /// When the window that contains this instant begins, when the next one does, and when the one
    /// behind that does.
    #[inline]
    pub(crate) fn around(&self, at: Micros) -> [Micros; 3] {
        let boundaries = self.latest();
        if (boundaries[0]..boundaries[1]).contains(&at) {
            return boundaries;
        }
        self.compute(at)
    }

    #[cold]
    fn compute(&self, at: Micros) -> [Micros; 3] {
        let boundaries = self.calendar.boundaries(at);
        self.latest.store(boundaries.into());
        boundaries
    }

    /// The boundaries that were asked for last; at first, those of now.
    #[inline]
    pub(crate) fn latest(&self) -> [Micros; 3] {
        **self.latest.load()
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.calendar)
    }
}

/// There is one of each calendar.
impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for Schedule {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_boundary_is_computed_once_a_window() {
        let schedule = Calendar::day()
            .zone("asia/tokyo")
            .unwrap()
            .schedule()
            .unwrap();
        let [_, next, after] = schedule.around(Micros::new(5_000_000_000_000_000));
        let kept = schedule.latest.load_full();
        for at in [
            next.saturating_sub(Micros::new(1_000_000)),
            next.saturating_sub(Micros::new(1)),
        ] {
            assert_eq!(schedule.around(at)[1], next);
            assert!(Arc::ptr_eq(&kept, &schedule.latest.load_full()));
        }
        assert_eq!(schedule.around(next)[..2], [next, after]);
        let same = Calendar::day().zone("Asia/Tokyo").unwrap();
        assert!(ptr::eq(schedule, same.schedule().unwrap()));
    }
}
