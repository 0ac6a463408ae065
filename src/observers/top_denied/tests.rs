use futures_util::FutureExt as _;

use super::*;
use crate::limit::Limit;
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::store::AlwaysDeny;
use crate::time::{DAY, ManualClock};

const HALF_LIFE: Duration = MINUTE;

/// A list with its two clocks: one that can be set and one that cannot.
struct List {
    top: TopDenied,
    limiter: Limiter,
    wall_clock: ManualClock,
    stopwatch: ManualClock,
}

impl List {
    fn new() -> Self {
        let (wall_clock, stopwatch) = (ManualClock::new(), ManualClock::at(Micros::ZERO));
        let top = TopDenied::builder(10)
            .half_life(HALF_LIFE)
            .on_clocks(Arc::new(wall_clock.clone()), Arc::new(stopwatch.clone()));
        let limiter = Limiter::builder(
            AlwaysDeny::new(MINUTE),
            [Policy::new("api", Limit::gcra(1, MINUTE))],
        )
        .observe(top.clone())
        .build();
        Self {
            top,
            limiter: limiter.unwrap(),
            wall_clock,
            stopwatch,
        }
    }

    fn deny(&self, times: usize) {
        for _ in 0..times {
            self.deny_one("mallory");
        }
    }

    fn deny_one(&self, subject: &str) {
        let asked = self.limiter.check("api", subject);
        let _ = asked.now_or_never().unwrap().unwrap();
    }

    fn denials(&self) -> u64 {
        self.top.list()[0].denials
    }
}

#[test]
fn counts_fade_as_time_passes_while_the_clock_is_set_back() {
    let list = List::new();
    list.deny(8);
    list.wall_clock.step_back(30 * DAY);
    list.stopwatch.advance(HALF_LIFE);
    assert_eq!(list.denials(), 4);
    list.deny(2);
    assert_eq!(list.denials(), 6);
    assert_eq!(list.top.list()[0].last_denied, list.wall_clock.now());
}

#[test]
fn a_clock_that_jumps_ahead_and_back_neither_fades_counts_nor_keeps_them() {
    let list = List::new();
    list.deny(8);
    list.wall_clock.advance(30 * DAY);
    assert_eq!(list.denials(), 8);
    list.wall_clock.step_back(30 * DAY);
    list.stopwatch.advance(HALF_LIFE);
    assert_eq!(list.denials(), 4);
}

#[test]
fn an_old_entry_leaves_room_in_which_others_are_counted_exactly() {
    let list = List::new();
    for number in 0..10 {
        list.deny_one(&format!("yesterday's {number}"));
    }
    list.stopwatch.advance(2 * HALF_LIFE);
    assert!(list.top.list().is_empty());
    list.deny(3);
    let entries = list.top.list();
    let counts: Vec<_> = entries
        .iter()
        .map(|of| (of.denials, of.overestimate))
        .collect();
    assert_eq!(counts, [(3, 0)]);
}

/// Otherwise the list would depend on how the system's clock is set.
#[test]
fn by_default_counts_fade_by_a_clock_that_nobody_sets() {
    let top = TopDenied::new(10);
    let year_2000 = Micros::from(30 * 365 * DAY);
    assert!(top.0.since < year_2000, "{:?}", top.0.since);
    assert!(top.0.wall_clock.now() > year_2000);
}
