//! `LimiterBuilder`: a store, rules, and what no replacing of these changes.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "config")]
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;

use super::leases::Leases;
use super::passes::Passes;
use super::rules::Rules;
use super::{Limiter, RulesInForce, Shared};
use crate::error::ConfigError;
use crate::key::KeyHasher;
use crate::key::Secret;
use crate::observer::{DecisionEvent, Observer, Observers, OnDecision};
use crate::store::{DEFAULT_TIMEOUT, Failover, Prefetching, Store};
use crate::task::InFlightWork;
use crate::trace::LogThrottles;

/// Builds a [`Limiter`] with settings other than the defaults.
#[must_use]
pub struct LimiterBuilder<S> {
    store: S,
    rules: Rules,
    timeout: Duration,
    secret: Option<Vec<u8>>,
    observers: Vec<Arc<dyn Observer>>,
}

impl<S: Store> LimiterBuilder<S> {
    pub(super) fn new(store: S, rules: Rules) -> Self {
        Self {
            store,
            rules,
            timeout: DEFAULT_TIMEOUT,
            secret: None,
            observers: Vec::new(),
        }
    }

    /// The time that a decision may take before the failure modes decide; 50 ms unless said, 1 ms
    /// to 60 s. Over Redis it has to be longer than a round trip to the server and 10 ms more: for so
    /// long a question about a key waits for one about the same key that is in flight. In a cluster
    /// it takes that much for each subject of a request.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Hashes subjects with a secret of at least 1 byte. Without it, somebody who can read the
    /// store could find out by trying whether, say, a certain address is in it. The whole fleet
    /// needs the same secret; another one starts all counts anew.
    pub fn key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Calls a closure for each decision. [`observe`](Self::observe) reports more.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tower_throttle::{DecisionEvent, DecisionResult, Limit, Limiter, MINUTE, MemoryStore, Policy};
    ///
    /// static DENIED: AtomicU64 = AtomicU64::new(0);
    ///
    /// let policy = Policy::new("api", Limit::gcra(100, MINUTE));
    /// let limiter = Limiter::builder(MemoryStore::new(), [policy])
    ///     .on_decision(|event: &DecisionEvent<'_>| {
    ///         if event.result() == DecisionResult::Denied {
    ///             DENIED.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn on_decision<F>(self, told: F) -> Self
    where
        F: Fn(&DecisionEvent<'_>) + Send + Sync + 'static,
    {
        self.observe(OnDecision(told))
    }

    /// Adds an observer of decisions and of the store's state. Can be called several times.
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
        if self.secret.as_ref().is_some_and(Vec::is_empty) {
            // Most likely an environment variable that is not set.
            return Err(ConfigError::out_of_range(
                "key_secret",
                "none",
                "a secret of at least 1 byte",
            ));
        }
        let observers = Observers::new(self.observers);
        let in_flight_work = InFlightWork::default();
        let prefetching = Arc::new(Prefetching::new(
            self.store,
            self.timeout,
            in_flight_work.clone(),
        ));
        let rules = Arc::new(RulesInForce::new(
            self.rules,
            self.timeout,
            observers.clone(),
        )?);
        let store = Failover::new(
            Arc::clone(&prefetching) as _,
            self.timeout,
            Arc::clone(&rules) as _,
            observers.clone(),
        );
        Ok(Limiter(Arc::new(Shared {
            rules,
            is_off: AtomicBool::new(false),
            turned_off: Notify::new(),
            store,
            give_back_batches: Box::new(move || prefetching.give_back_all()),
            observers,
            subjects: KeyHasher::new(self.secret.as_deref().map(Secret::new)),
            leases: Leases::default(),
            in_flight_work,
            log_throttle: LogThrottles::default(),
            passes: Passes::default(),
            #[cfg(feature = "config")]
            keeper: OnceLock::new(),
        })))
    }
}

impl<S> fmt::Debug for LimiterBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("rules", &self.rules)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
