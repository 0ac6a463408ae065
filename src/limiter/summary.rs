//! `PolicySummary`: a policy in force, described for people.

use super::Limiter;
use crate::error::CheckError;
use crate::mode::Mode;
use crate::policy::CompiledPolicy;
use crate::request::KeyKind;
use crate::store::FailureMode;

/// A policy in force, described for operators.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PolicySummary {
    /// The policy's name.
    pub name: String,
    /// The name of its algorithm, as in stored keys: `gcra`, `fixed_window`; `none` of a limit that
    /// [admits nothing](crate::Limit::nothing).
    pub algorithm: &'static str,
    /// The numbers of its limit in words: `100 in 1 min, burst 20`, or `10 in 1 s and 1000 in 1 h`.
    pub limit: String,
    /// The most permits that are ever available at once.
    pub capacity: u64,
    /// The mode that it is in.
    pub mode: Mode,
    /// What its keys are made of.
    pub key: KeyKind,
    /// The requests that it applies to, in words: `POST /login`. Empty if it applies to all.
    pub routes: Vec<String>,
    /// What it decides when the store gives no answer.
    pub on_store_failure: FailureMode,
    /// Its [penalty](crate::Policy::penalty) in words.
    pub penalty: Option<String>,
    /// The [group](crate::Policy::group) that it shares stored keys with.
    pub group: Option<String>,
    /// How much of the limit a process may hold in advance, in words, if its permits are
    /// [prefetched](crate::Policy::prefetch): `at most 10 % for 1 s`.
    pub prefetch: Option<String>,
}

impl Limiter {
    /// Describes the policies in force, in their order.
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
        policies.map(|policy| PolicySummary::of(policy)).collect()
    }

    /// Describes this policy.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub fn summary(&self, policy: &str) -> Result<PolicySummary, CheckError> {
        Ok(PolicySummary::of(self.0.rules.load().named(policy)?))
    }
}

impl PolicySummary {
    fn of(policy: &CompiledPolicy) -> Self {
        Self {
            name: policy.id.name().to_owned(),
            algorithm: policy.algorithm.map_or("none", |first| first.name()),
            limit: policy.limit().to_string(),
            capacity: policy.capacity(),
            mode: policy.mode(),
            key: policy.key_kind(),
            routes: policy.routes(),
            on_store_failure: policy.on_store_failure,
            penalty: policy.own_penalty().map(ToString::to_string),
            group: policy.id.group().map(str::to_owned),
            prefetch: policy.id.prefetch().map(|prefetch| prefetch.to_string()),
        }
    }
}
