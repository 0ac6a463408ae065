//! `Clock`: the system clock, and a cached clock that reads the processor's counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::Micros;

/// The clock of a store that counts in process.
///
/// Use [`SystemClock`](crate::SystemClock) in production and `ManualClock` (feature `test-util`) in
/// tests. A Redis store uses the server's clock instead, unless a test sets
/// `RedisStoreBuilder::clock_for_tests`.
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since the Unix epoch. This clock should be steady: it should not jump when the
    /// system clock is set. Everything except aligned windows and
    /// calendars uses it.
    ///
    /// If it jumps back, no capacity is freed and no request waits longer than two windows. But
    /// [`gcra`](crate::Limit::gcra) and the buckets store the instant of full recovery, so a key
    /// that owes permits recovers later by the length of the jump. If it jumps ahead, usage expires
    /// sooner.
    fn now(&self) -> Micros;

    /// The time of day, in microseconds since the Unix epoch. [Aligned](crate::Limit::aligned)
    /// windows begin at multiples of their length on this clock, and those of a calendar where it says. Defaults to [`now`](Self::now).
    fn wall_clock(&self) -> Micros {
        self.now()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn wall_clock(&self) -> Micros {
        (**self).wall_clock()
    }
}

impl<C: Clock + ?Sized> Clock for Box<C> {
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn wall_clock(&self) -> Micros {
        (**self).wall_clock()
    }
}

/// The steady system clock: the time of day at its first use plus the time elapsed since. It does
/// not jump when the system clock is set; its [`wall_clock`](Clock::wall_clock) does.
///
/// It pauses while the machine sleeps if the operating system's monotonic clock does. Between
/// readings of the system clocks, at most a millisecond apart, it uses the processor's counter if
/// that is steady.
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

/// A steady clock that starts at the time of another one.
struct Anchored<S, W> {
    /// The wall clock's time when the steady clock was at zero.
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
        // A clock before 1970 reads as the epoch, which refunds nothing.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(Micros::ZERO, Micros::from)
    }
}

/// The time since it was created. It does not jump when the system clock is set.
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

/// How long the counter is used before the clock is read again.
const TRUSTED_NS: u64 = 1_000_000;

/// A reading of the clock that took longer than this is not cached.
const READ_WITHIN_NS: u64 = 20_000;

/// The time of another clock, at a third of the cost of a system call.
///
/// The counter is used for only a millisecond at a time: the clock may be set, and the machine may
/// sleep or be moved to another processor.
pub(super) struct Counted<C> {
    clock: C,
    counter: quanta::Clock,
    /// The counter's value, in nanoseconds, at which the clock is read again.
    trusted_until: AtomicU64,
    /// How far the clock is ahead of the counter, in microseconds. Wraps around if it is behind.
    ahead_us: AtomicU64,
}

impl<C: Clock> Counted<C> {
    /// The first call in a process takes about a millisecond to calibrate the counter.
    pub(super) fn new(clock: C) -> Self {
        Self::by(quanta::Clock::new(), clock)
    }

    fn by(counter: quanta::Clock, clock: C) -> Self {
        let counted = Self {
            clock,
            counter,
            trusted_until: AtomicU64::new(0),
            ahead_us: AtomicU64::new(0),
        };
        counted.read(counted.count());
        counted
    }

    fn count(&self) -> u64 {
        self.counter.delta_as_nanos(0, self.counter.raw())
    }

    // Out of line: few readings need it.
    #[inline(never)]
    fn read(&self, count: u64) -> Micros {
        let now = self.clock.now();
        let count_after = self.count();
        // If the thread was interrupted in between, the counter's value at that instant is unknown.
        if count_after.wrapping_sub(count) > READ_WITHIN_NS {
            return now;
        }
        // The later value, so that the result is never ahead of the clock, which would return
        // permits too early.
        let count = count_after;
        let ahead = now.get().wrapping_sub(count / 1_000);
        self.ahead_us.store(ahead, Ordering::Relaxed);
        // A thread that sees this value sees `ahead_us`, too.
        let until = count.saturating_add(TRUSTED_NS);
        self.trusted_until.store(until, Ordering::Release);
        now
    }
}

impl<C: Clock> Clock for Counted<C> {
    #[inline]
    fn now(&self) -> Micros {
        let count = self.count();
        let left = self
            .trusted_until
            .load(Ordering::Acquire)
            .wrapping_sub(count);
        // More than the maximum remains if the counter was set back.
        if left == 0 || left > TRUSTED_NS {
            return self.read(count);
        }
        let ahead = self.ahead_us.load(Ordering::Relaxed);
        Micros::new(ahead.wrapping_add(count / 1_000))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

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
        // Also through the pointers in which a store keeps its clock.
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

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn counted() -> (Counted<ManualClock>, ManualClock, impl Fn(Duration)) {
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(Duration::from_secs(100));
        let clock = ManualClock::new();
        (Counted::by(counter, clock.clone()), clock, move |by| {
            mock.increment(by);
        })
    }

    #[test]
    fn the_counter_is_used_for_a_millisecond_and_then_the_clock_is_read() {
        let (counted, clock, count) = counted();
        let start = clock.now();
        assert_eq!(counted.now(), start);
        count(Duration::from_micros(999));
        assert_eq!(counted.now(), start.saturating_add(Micros::new(999)));
        // The counter is much too fast.
        clock.advance(Duration::from_micros(10));
        count(Duration::from_micros(1));
        assert_eq!(counted.now(), start.saturating_add(Micros::new(10)));
        count(Duration::from_micros(5));
        assert_eq!(counted.now(), start.saturating_add(Micros::new(15)));
    }

    #[test]
    fn a_clock_that_is_set_is_followed_within_a_millisecond() {
        let (counted, clock, count) = counted();
        for _ in 0..2 {
            clock.step_back(Duration::from_secs(3_600));
            count(MILLISECOND);
            assert_eq!(counted.now(), clock.now());
        }
        clock.set(Micros::new(5));
        count(MILLISECOND);
        assert_eq!(counted.now(), Micros::new(5), "behind the counter");
    }

    /// A clock whose reading takes this long before and after the instant that it returns, as when other
    /// processes have the processor.
    struct SlowClock {
        clock: ManualClock,
        mock: Arc<quanta::Mock>,
        times: Mutex<[Duration; 2]>,
    }

    impl SlowClock {
        fn advance(&self, by: Duration) {
            self.clock.advance(by);
            self.mock.increment(by);
        }
    }

    impl Clock for SlowClock {
        fn now(&self) -> Micros {
            let [before, behind] = *self.times.lock().unwrap();
            self.advance(before);
            let now = self.clock.now();
            self.advance(behind);
            now
        }
    }

    #[test]
    fn a_reading_that_took_too_long_is_not_cached() {
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(Duration::from_secs(100));
        let counted = Counted::by(
            counter,
            SlowClock {
                clock: ManualClock::new(),
                mock,
                times: Mutex::default(),
            },
        );
        let (slow, at_once) = (5 * MILLISECOND, Duration::ZERO);
        for times in [[slow, at_once], [at_once, slow]] {
            counted.clock.advance(MILLISECOND);
            *counted.clock.times.lock().unwrap() = times;
            assert_eq!(
                counted.now(),
                counted.clock.clock.now().saturating_sub(times[1].into())
            );
            *counted.clock.times.lock().unwrap() = [at_once; 2];
            assert_eq!(counted.now(), counted.clock.clock.now());
            counted.clock.advance(MILLISECOND / 2);
            assert_eq!(counted.now(), counted.clock.clock.now());
        }
    }

    #[test]
    fn a_counter_that_is_set_back_is_not_trusted() {
        let (counter, mock) = quanta::Clock::mock();
        mock.increment(Duration::from_secs(100));
        let clock = ManualClock::new();
        let counted = Counted::by(counter, clock.clone());
        mock.decrement(Duration::from_secs(90));
        assert_eq!(counted.now(), clock.now());
        mock.increment(Duration::from_micros(7));
        let later = clock.now().saturating_add(Micros::new(7));
        assert_eq!(counted.now(), later);
    }
}
