//! governor: GCRA in this process.

use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota};

use super::Allowance;

pub struct Governor(DefaultKeyedRateLimiter<u64>);

impl Governor {
    pub fn new(allowance: Allowance) -> Self {
        let burst = NonZeroU32::new(allowance.burst).expect("a burst");
        let quota = Quota::with_period(allowance.interval()).expect("an interval");
        Self(DefaultKeyedRateLimiter::keyed(quota.allow_burst(burst)))
    }

    pub fn check(&self, key: u64) -> bool {
        self.0.check_key(&key).is_ok()
    }
}
