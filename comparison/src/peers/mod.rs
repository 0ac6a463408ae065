//! The deciders: this crate, others, and bare clients as the lower bound for all of them.

use std::time::Duration;

pub mod actix_limitation;
pub mod bare;
pub mod deadpool;
pub mod edition;
pub mod governor;
pub mod layered;
#[cfg(feature = "limitador")]
pub mod limitador;
pub mod ours;
pub mod tower_governor;
pub mod tower_rate_limit_redis;
pub mod tower_redis_cell;

/// What a subject may do, in terms that all limiters have.
#[derive(Clone, Copy)]
pub struct Allowance {
    /// This many permits...
    pub permits: u32,
    /// ...in this time...
    pub per: Duration,
    /// ...and this many at once.
    pub burst: u32,
}

impl Allowance {
    /// More than anybody here asks of one key out of many, at a rate so low that a key mostly still
    /// owes something when it is asked about again in the same turn.
    pub const AMPLE: Self = Self::new(10, Duration::from_secs(1), 60_000);
    /// As an API may give.
    pub const BRISK: Self = Self::new(100, Duration::from_secs(1), 60_000);
    /// A small part, a hundredth or less, of what is asked of one key.
    pub const SCARCE: Self = Self::new(100, Duration::from_secs(1), 10);
    /// More than one key can be asked in any measurement.
    pub const BOUNDLESS: Self = Self::new(1_000_000, Duration::from_secs(1), 100_000_000);

    const fn new(permits: u32, per: Duration, burst: u32) -> Self {
        Self {
            permits,
            per,
            burst,
        }
    }

    /// The time until one permit is back.
    pub fn interval(self) -> Duration {
        self.per / self.permits
    }

    /// The permits that come back within a minute.
    pub fn for_a_minute(self) -> u32 {
        Duration::from_secs(60).div_duration_f64(self.interval()) as u32
    }

    /// For deciders that count in windows: this many, in a window of this length.
    pub fn window(self) -> (u32, Duration) {
        let most = self.burst.max(self.permits);
        (most, self.per * most / self.permits)
    }
}

/// The name of a key where names are texts.
pub fn name_of(key: u64) -> String {
    format!("user:{key}")
}
