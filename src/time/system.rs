//! The clocks of the machine.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Micros;
use super::clock::Clock;
use super::counted::Counted;

/// The time of day at which the process first asked, and what has passed since then. So it does not
/// step when the operating system's clock is set; its [`wall_clock`](Clock::wall_clock) does.
///
/// It stands still while the machine sleeps, where the operating system's steady clock does. Between
/// readings of either clock, a millisecond apart at most, the processor's counter goes on, where there
/// is one that is steady.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemClock;

static SYSTEM: LazyLock<Anchored<SinceStart, Counted<RealTime>>> =
    LazyLock::new(|| Anchored::new(SinceStart::new(), Counted::new(RealTime)));

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        SYSTEM.now()
    }

    fn wall_clock(&self) -> Micros {
        SYSTEM.wall_clock()
    }
}

/// A steady clock, set by another one at first.
struct Anchored<S, W> {
    /// What the other one showed when the steady one showed zero.
    start: Micros,
    steady: S,
    wall: W,
}

impl<S: Clock, W: Clock> Anchored<S, W> {
    fn new(steady: S, wall: W) -> Self {
        Self {
            start: wall.now().saturating_sub(steady.now()),
            steady,
            wall,
        }
    }
}

impl<S: Clock, W: Clock> Clock for Anchored<S, W> {
    fn now(&self) -> Micros {
        self.start.saturating_add(self.steady.now())
    }

    fn wall_clock(&self) -> Micros {
        self.wall.now()
    }
}

struct RealTime;

impl Clock for RealTime {
    fn now(&self) -> Micros {
        // A clock set before 1970 reads as the epoch: that gives no permits back.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(Micros::ZERO, Micros::from)
    }
}

/// The time since it was made. It does not step when the system's clock is set.
pub(crate) struct SinceStart(Counted<Elapsed>);

impl SinceStart {
    pub(crate) fn new() -> Self {
        Self(Counted::new(Elapsed(Instant::now())))
    }
}

impl Clock for SinceStart {
    fn now(&self) -> Micros {
        self.0.now()
    }
}

struct Elapsed(Instant);

impl Clock for Elapsed {
    fn now(&self) -> Micros {
        self.0.elapsed().into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::time::{DAY, HOUR, ManualClock, SECOND};

    #[test]
    fn a_wall_clock_that_is_set_moves_no_other_clock() {
        let steady = ManualClock::at(Micros::new(7));
        let wall = ManualClock::new();
        let start = wall.now();
        let both = Anchored::new(steady.clone(), wall.clone());
        assert_eq!((both.now(), both.wall_clock()), (start, start));
        steady.advance(SECOND);
        wall.step_back(HOUR);
        let later = start.saturating_add(SECOND.into());
        assert_eq!((both.now(), both.wall_clock()), (later, wall.now()));
        wall.advance(2 * HOUR);
        // Also through the pointers by which a store has its clock.
        let both: Box<Arc<dyn Clock>> = Box::new(Arc::new(both));
        assert_eq!((both.now(), both.wall_clock()), (later, wall.now()));
    }

    #[test]
    fn the_systems_clock_starts_at_the_time_of_day() {
        let apart = SystemClock
            .wall_clock()
            .get()
            .abs_diff(SystemClock.now().get());
        assert!(Micros::new(apart) < DAY.into(), "{apart} us");
    }
}
