//! `LimiterBuilder`: a store, rules, and the settings that stay when rules are replaced.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "config")]
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Notify;

use super::failed_holds::FailedHolds;
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

    /// Sets the time that a decision may take before the failure modes decide: by default 50 ms,
    /// from 1 ms to 60 s. Over Redis it must be longer than a round trip plus 10 ms: a call waits
    /// that long for a call with the same key that is in flight. In a cluster it takes that much
    /// for each key of a request.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets a secret (at least 1 byte) for hashing keys. Without it, anyone who can read the store
    /// could guess keys, such as addresses, and compare their hashes. All processes need the same
    /// secret; a different one resets all counts.
    pub fn key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Adds an observer of decisions: a closure. [`observe`](Self::observe) reports more.
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
    pub fn on_decision<F>(self, observe: F) -> Self
    where
        F: Fn(&DecisionEvent<'_>) + Send + Sync + 'static,
    {
        self.observe(OnDecision(observe))
    }

    /// Adds an observer. Can be called several times.
    pub fn observe(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Validates everything and builds the limiter.
    ///
    /// # Errors
    ///
    /// An error that names the invalid policy and field and what was expected.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        if self.secret.as_ref().is_some_and(Vec::is_empty) {
            // An empty secret is most likely an environment variable that is not set.
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
            failed_holds: FailedHolds::default(),
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
