//! A system's clock that is set while the store counts.

use tower_throttle::{
    Clock, Decision, HOUR, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Micros, Policy,
    SECOND, per_second,
};

use super::Setup;
use super::asking::{Asked, ask};

/// A clock that goes on steadily, and the wall clock, which may be set.
#[derive(Clone)]
struct Both {
    steady: ManualClock,
    wall: ManualClock,
}

impl Clock for Both {
    fn now(&self) -> Micros {
        self.steady.now()
    }

    fn wall_clock(&self) -> Micros {
        self.wall.now()
    }
}

/// A store with this policy, at the full hour.
fn at_the_hour(limit: Limit) -> (Setup, Both) {
    let [steady, wall] = [(); 2].map(|()| ManualClock::new());
    let both = Both { steady, wall };
    let store = MemoryStore::builder().clock(both.clone()).build();
    let limiter = Limiter::new(store.clone(), [Policy::new("api", limit)]).unwrap();
    let clock = both.steady.clone();
    (
        Setup {
            clock,
            store,
            limiter,
        },
        both,
    )
}

impl Both {
    fn pass(&self, time: std::time::Duration) {
        self.steady.advance(time);
        self.wall.advance(time);
    }
}

/// How many requests are let in until one is denied, and that denial.
fn use_up(setup: &Setup) -> (u64, Decision) {
    let mut had = 0;
    loop {
        let decision = setup.check("alice");
        if !decision.is_allowed() {
            return (had, decision);
        }
        had += 1;
    }
}

#[test]
fn a_wall_clock_that_is_set_keeps_nobody_out_and_lets_nobody_in() {
    let limits = [
        Limit::gcra(2, SECOND),
        Limit::token_bucket(2, per_second(2)),
        Limit::leaky_bucket(2, per_second(2)).without_delay(),
        Limit::fixed_window(2, SECOND),
        Limit::fixed_window(2, SECOND).aligned(),
        Limit::sliding_log(2, SECOND),
        Limit::sliding_window(2, SECOND),
        Limit::sliding_counter(2, SECOND),
    ];
    let back: fn(&ManualClock) = |wall| wall.step_back(10 * MINUTE);
    let ahead: fn(&ManualClock) = |wall| wall.advance(HOUR);
    for limit in limits {
        for set in [back, ahead] {
            let (setup, clocks) = at_the_hour(limit);
            let (had, denied) = use_up(&setup);
            assert_eq!(had, 2, "{limit:?}");
            let wait = denied.retry_after().unwrap();
            set(&clocks.wall);
            let denied = setup.check("alice");
            assert_eq!(denied.retry_after(), Some(wait), "{limit:?}");
            clocks.pass(wait);
            assert!(setup.check("alice").is_allowed(), "{limit:?}");
        }
    }
}

#[test]
fn an_aligned_window_ends_on_time_and_the_next_is_aligned() {
    let limit = Limit::fixed_window(2, MINUTE).aligned();
    let back: fn(&ManualClock) = |wall| wall.step_back(10 * MINUTE + 15 * SECOND);
    let ahead: fn(&ManualClock) = |wall| wall.advance(10 * MINUTE + 15 * SECOND);
    for (set, into) in [(back, 45), (ahead, 15)] {
        let (setup, clocks) = at_the_hour(limit);
        clocks.pass(20 * SECOND);
        let (had, denied) = use_up(&setup);
        assert_eq!((had, denied.retry_after()), (2, Some(40 * SECOND)));
        set(&clocks.wall);
        assert_eq!(setup.check("alice").retry_after(), Some(40 * SECOND));
        clocks.pass(40 * SECOND);
        let (had, denied) = use_up(&setup);
        let left = (60 - into) * SECOND;
        assert_eq!(
            (had, denied.retry_after()),
            (2, Some(left)),
            "{into} s into a minute"
        );
        clocks.pass(left);
        let (had, denied) = use_up(&setup);
        assert_eq!((had, denied.retry_after()), (2, Some(MINUTE)));
    }
}

#[test]
fn only_aligned_windows_follow_the_wall_clock() {
    let aligned = Limit::fixed_window(9, MINUTE).aligned();
    let (setup, clocks) = at_the_hour(aligned);
    clocks.wall.advance(30 * SECOND);
    let both = [
        ("aligned", aligned),
        ("opened", Limit::fixed_window(9, MINUTE)),
    ];
    let both = both.map(|(name, limit)| Asked::new(name, limit, "alice", 1));
    let decisions = ask(&setup.store, &both.each_ref().map(Asked::check)).unwrap();
    let resets: Vec<_> = decisions.iter().map(Decision::reset_after).collect();
    assert_eq!(resets, [30 * SECOND, MINUTE]);
}
