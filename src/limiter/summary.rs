//! `PolicySummary`: what a policy in force says, for people.

use super::Limiter;
use crate::mode::Mode;

/// What a policy in force says, for people who look after it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicySummary {
    /// The policy's name.
    pub name: String,
    /// The name of its algorithm, as in stored keys: `gcra`, `fixed_window`.
    pub algorithm: &'static str,
    /// The numbers of its limit in words: `100 in 1 min, burst 20`.
    pub limit: String,
    /// The mode that it is in.
    pub mode: Mode,
}

impl Limiter {
    /// What the policies in force say, in their order.
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy};
    ///
    /// let policy = Policy::new("api", Limit::gcra(100, MINUTE).burst(20));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
    /// assert_eq!(limiter.summaries()[0].limit, "100 in 1 min, burst 20");
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn summaries(&self) -> Vec<PolicySummary> {
        let rules = self.0.rules.load();
        let policies = rules.policies.iter();
        let summary = policies.map(|policy| PolicySummary {
            name: policy.id.name().to_owned(),
            algorithm: policy.algorithm.name(),
            limit: policy.limit().to_string(),
            mode: policy.mode(),
        });
        summary.collect()
    }
}
