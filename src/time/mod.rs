//! Time as integers: instants and durations in whole microseconds, and the clocks that tell them.
//!
//! Microseconds since the Unix epoch stay below 2^53 until the year 2255, so that a Lua number (a
//! double) holds them exactly and scripts and Rust count alike.

use std::fmt;
use std::time::Duration;

mod clock;
#[cfg(any(test, feature = "test-util"))]
mod manual_clock;

pub(crate) use self::clock::SinceStart;
pub use self::clock::{Clock, SystemClock};
#[cfg(any(test, feature = "test-util"))]
pub use self::manual_clock::ManualClock;

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
/// All arithmetic saturates, so no value can panic or wrap around.
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
        // In 64 bits: a 128-bit division is slow, and every clock reading gets here.
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
