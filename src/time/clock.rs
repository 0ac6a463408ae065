//! `Clock`: tells the time.

use std::sync::Arc;

use super::Micros;

/// Tells the time to a store that counts in process.
///
/// [`SystemClock`](crate::SystemClock) is the one in production; tests hold a `ManualClock` (feature
/// `test-util`) and move it by hand. With Redis the server's clock decides, never this one; the
/// exception is `RedisStoreBuilder::clock_for_tests`.
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
