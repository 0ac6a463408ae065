//! Time as integers: instants and durations in whole microseconds, and the clocks that tell them.
//!
//! Microseconds since the Unix epoch stay below 2^53 until the year 2255, so that a Lua number (a
//! double) holds them exactly and scripts and Rust count alike.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

mod counted;

use self::counted::Counted;

/// One second, for limits: `Limit::gcra(10, SECOND)`.
pub const SECOND: Duration = Duration::from_secs(1);
/// One minute, for limits: `Limit::gcra(100, MINUTE)`; multiples as `15 * MINUTE`.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour of 60 minutes.
pub const HOUR: Duration = Duration::from_secs(3_600);
/// One day of 24 hours.
pub const DAY: Duration = Duration::from_secs(86_400);

/// A whole number of microseconds: an instant since the Unix epoch, or a duration.
///
/// All arithmetic saturates, so that no time, however absurd, can panic or wrap around.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::Micros;
///
/// assert_eq!(Micros::from(Duration::from_millis(3)), Micros::new(3_000));
/// assert_eq!(Micros::new(5).saturating_sub(Micros::new(9)), Micros::ZERO);
/// assert_eq!(Micros::new(1_000_001).ceil_secs(), 2);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// Zero microseconds; as an instant, the Unix epoch.
    pub const ZERO: Self = Self(0);

    /// `us` microseconds.
    pub const fn new(us: u64) -> Self {
        Self(us)
    }

    /// The number of microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether this is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, at most `u64::MAX` microseconds.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Whole milliseconds, rounded up: a wait is never announced too short.
    pub const fn ceil_millis(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Whole seconds, rounded up: a wait is never announced too short.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// As a standard duration.
    pub const fn to_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

/// Rounds a fraction of a microsecond up; saturates.
impl From<Duration> for Micros {
    fn from(duration: Duration) -> Self {
        // In 64 bits: a division of 128 is slow, and every reading of a clock comes through here.
        let us = u64::from(duration.subsec_nanos().div_ceil(1_000));
        Self(
            duration
                .as_secs()
                .saturating_mul(1_000_000)
                .saturating_add(us),
        )
    }
}

impl From<Micros> for Duration {
    fn from(us: Micros) -> Self {
        us.to_duration()
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// Tells the time to a store that counts in process.
///
/// [`SystemClock`] is the one in production; tests hold a [`ManualClock`] and move it by hand.
/// With Redis the server's clock decides, never this one (see
/// [`RedisStoreBuilder::clock_for_tests`](crate::RedisStoreBuilder::clock_for_tests) for the
/// exception).
pub trait Clock: Send + Sync + 'static {
    /// Microseconds since the Unix epoch, on a clock that should not step when the system's clock is
    /// set: everything but aligned windows goes by it.
    ///
    /// If it does step back, that frees no capacity, and nobody waits for more than two windows; but
    /// [`gcra`](crate::Limit::gcra) and the buckets store an instant that lies ahead, at which all
    /// that was taken is paid back, so whoever owes something owes the step as well. If it steps
    /// ahead, what was used is forgotten sooner.
    fn now(&self) -> Micros;

    /// The time of day, in microseconds since the Unix epoch: windows that are
    /// [aligned](crate::Limit::aligned) begin at multiples of their length by it. The same as
    /// [`now`](Self::now) unless implemented.
    fn wall_clock(&self) -> Micros {
        self.now()
    }
}

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

/// A clock that stands still until a test moves it. Clones show the same time.
///
/// It does not move while something waits for permits: [tests of your own](crate#tests-of-your-own)
/// has a clock for that.
///
/// ```
/// use tower_throttle::{Limit, Limiter, ManualClock, MemoryStore, Policy, SECOND};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let limiter = Limiter::new(store, [Policy::new("api", Limit::gcra(1, SECOND))])?;
///
/// assert!(limiter.check("api", "alice").await?.is_allowed());
/// assert!(!limiter.check("api", "alice").await?.is_allowed());
/// clock.advance(SECOND);
/// assert!(limiter.check("api", "alice").await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Starts on 2100-01-01: ahead of every server's clock, so that a Redis store driven by this
    /// clock never sees its keys expire under it.
    const START: Micros = Micros::new(4_102_444_800_000_000);

    /// A clock that stands at 2100-01-01 00:00:00 UTC.
    pub fn new() -> Self {
        Self::at(Self::START)
    }

    /// A clock that stands at this instant.
    pub fn at(now: Micros) -> Self {
        Self(Arc::new(AtomicU64::new(now.get())))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        let by = Micros::from(by).get();
        self.update(|now| now.saturating_add(by));
    }

    /// Moves the clock back, as a server's clock does when it is corrected.
    pub fn step_back(&self, by: Duration) {
        let by = Micros::from(by).get();
        self.update(|now| now.saturating_sub(by));
    }

    /// Sets the clock.
    pub fn set(&self, now: Micros) {
        self.0.store(now.get(), Ordering::SeqCst);
    }

    fn update(&self, change: impl Fn(u64) -> u64) {
        // The closure always returns `Some`, so the update always happens.
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(change(now)));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros::new(self.0.load(Ordering::SeqCst))
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

#[cfg(test)]
mod tests {
    use super::*;

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
