//! `LimiterBuilder`: the policies, the store, and what holds for all of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::leases::Leases;
use super::{Limiter, Shared};
use crate::error::ConfigError;
use crate::key::Secret;
use crate::observe::{Observer, Observers};
use crate::policy::Policy;
use crate::store::{Failover, FailureMode, Store};

/// The time that a decision may take unless said otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

/// Builds a [`Limiter`] with more than the defaults.
#[must_use]
pub struct LimiterBuilder<S> {
    store: S,
    policies: Vec<Policy>,
    timeout: Duration,
    on_store_failure: FailureMode,
    secret: Option<Vec<u8>>,
    observers: Vec<Arc<dyn Observer>>,
}

impl<S: Store> LimiterBuilder<S> {
    pub(super) fn over(store: S) -> Self {
        Self {
            store,
            policies: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            on_store_failure: FailureMode::default(),
            secret: None,
            observers: Vec::new(),
        }
    }

    /// Adds one policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds policies. All that apply to a request are decided together, all or nothing.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy>) -> Self {
        self.policies.extend(policies);
        self
    }

    /// The time that a decision may take before the failure modes decide; 50 ms unless said, 1 ms
    /// to 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What policies that do not say it themselves decide when the store gives no answer;
    /// [`FailureMode::Allow`] unless said.
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = mode;
        self
    }

    /// Hashes subjects with a secret, so that who reads the store cannot find out by trying
    /// whether, say, a certain address is in it. At least 1 byte. The whole fleet needs the same
    /// secret; another one starts all counts anew.
    pub fn key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Tells somebody what is decided and how the store fares; called several times, each of them.
    pub fn observe(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Checks everything and builds the limiter.
    ///
    /// # Errors
    ///
    /// Names the policy and the field that make no sense, and what would be right.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        if self.timeout < Duration::from_millis(1) || self.timeout > Duration::from_secs(60) {
            return Err(ConfigError::out_of_range(
                "timeout",
                format_args!("{:?}", self.timeout),
                "1 ms to 60 s",
            ));
        }
        if self.secret.as_ref().is_some_and(Vec::is_empty) {
            // Most likely a variable of the environment that is not set.
            return Err(ConfigError::out_of_range(
                "key_secret",
                "none",
                "a secret of at least 1 byte",
            ));
        }
        let mut names = HashSet::new();
        let mut policies = Vec::with_capacity(self.policies.len());
        for policy in self.policies {
            let policy = policy.ready(self.on_store_failure)?;
            if !names.insert(policy.id.name().to_owned()) {
                return Err(ConfigError::DuplicatePolicy {
                    name: policy.id.name().to_owned(),
                });
            }
            policies.push(policy);
        }
        let observers = Observers::new(self.observers);
        let store = Failover::new(self.store, self.timeout, observers.clone());
        Ok(Limiter(Arc::new(Shared {
            breaker: store.breaker(),
            store: Box::new(store),
            policies,
            observers,
            secret: self.secret.as_deref().map(Secret::new),
            leases: Leases::default(),
        })))
    }
}

#[cfg(test)]
mod tests;
