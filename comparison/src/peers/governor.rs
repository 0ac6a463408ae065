//! governor: GCRA in this process.

use std::hash::Hash;
use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota};

use super::Allowance;

/// With plain keys, numbers or texts.
pub struct Governor<K: Clone + Eq + Hash>(DefaultKeyedRateLimiter<K>);

impl<K: Clone + Eq + Hash> Governor<K> {
    pub fn new(allowance: Allowance) -> Self {
        let burst = NonZeroU32::new(allowance.burst).expect("a burst");
        let quota = Quota::with_period(allowance.interval()).expect("an interval");
        Self(DefaultKeyedRateLimiter::keyed(quota.allow_burst(burst)))
    }

    pub fn check(&self, key: &K) -> bool {
        self.0.check_key(key).is_ok()
    }
}
