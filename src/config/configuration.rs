//! `Config`: a valid configuration.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::response::RejectionChoice;
use super::store::StoreChoice;
use crate::error::{ConfigError, StoreError, StoreErrorKind};
use crate::http::QuotaHeaders;
use crate::limiter::{Limiter, Rules};
use crate::observer::Observer;
use crate::policy::Policy;
use crate::store::memory::MemoryStore;
use crate::store::{DEFAULT_TIMEOUT, Store};
use crate::tower::RateLimitLayer;

/// A configuration, read and checked. The guide on [configuration](crate::guide::configuration) has
/// the format, and an example of each field.
#[derive(Clone)]
pub struct Config {
    pub(super) store: StoreChoice,
    pub(super) secret: Option<String>,
    pub(super) headers: QuotaHeaders,
    pub(super) rejection: RejectionChoice,
    pub(super) timeout: Duration,
    pub(super) rules: Rules,
    pub(super) in_code: InCode,
}

impl Config {
    /// Adds a policy in code, for what a file cannot express, such as a key of your own or
    /// [`settle`](Policy::settle). It comes after the policies of the file.
    ///
    /// ```
    /// use tower_throttle::{Config, Key, Limit, MINUTE, Policy, RequestHead};
    ///
    /// let tenant = |request: &RequestHead<'_>| {
    ///     let host = request.host()?;
    ///     Some(Key::from(host.split('.').next()?))
    /// };
    /// let config = Config::from_toml("store = \"memory\"\npolicy = []")?
    ///     .policy(Policy::new("tenant", Limit::gcra(600, MINUTE)).by(tenant))?;
    /// let limiter = config.connect_lazy()?;
    /// assert_eq!(limiter.policy_names(), ["tenant"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the policy is invalid, or another one has its name.
    pub fn policy(mut self, policy: Policy) -> Result<Self, ConfigError> {
        self.in_code.add(policy.clone(), self.rules.clone())?;
        self.rules = self.rules.with_policy(policy);
        Ok(self)
    }

    /// Adds an observer of decisions and of the store; several calls add several observers. See
    /// [`LimiterBuilder::observe`](crate::LimiterBuilder::observe).
    #[must_use]
    pub fn observe(mut self, observer: impl Observer) -> Self {
        self.in_code.observers.push(Arc::new(observer));
        self
    }

    /// Connects to the store and builds the limiter.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached or refuses the connection. The error shows only the host and
    /// the port of the URL, which may contain a password.
    pub async fn connect(&self) -> Result<Limiter, StoreError> {
        match self.store.redis() {
            None => self.limiter(MemoryStore::new()),
            Some(store) => self.limiter(store.connect().await?),
        }
        .map_err(invalid)
    }

    /// Builds the limiter without connecting: the first decision connects. The service starts even
    /// when the store is down, and the failure modes decide until it is up.
    ///
    /// # Errors
    ///
    /// If the store's address is invalid.
    pub fn connect_lazy(&self) -> Result<Limiter, StoreError> {
        match self.store.redis() {
            None => self.limiter(MemoryStore::new()),
            Some(store) => self.limiter(store.connect_lazy()?),
        }
        .map_err(invalid)
    }

    /// Puts the policies over a store of yours in place of the file's: one that you have built with
    /// settings that no file has, or in a test a [`MemoryStore`] whose clock you move.
    ///
    /// ```
    /// use tower_throttle::{Config, MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = Config::from_toml(
    ///     r#"
    ///     store = "redis://redis.internal"
    ///     policy = [{ name = "client", algorithm = "gcra", limit = "1/min", key = "peer" }]
    ///     "#,
    /// )?;
    /// // No Redis is asked.
    /// let limiter = config.limiter(MemoryStore::builder().capacity(10_000).build())?;
    /// assert!(limiter.check("client", "somebody").await?.is_allowed());
    /// assert!(!limiter.check("client", "somebody").await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Names the policy and the field that make no sense, and what would be right.
    pub fn limiter(&self, store: impl Store) -> Result<Limiter, ConfigError> {
        let mut limiter = Limiter::builder(store, self.rules.clone()).timeout(self.timeout);
        if let Some(secret) = &self.secret {
            limiter = limiter.key_secret(secret);
        }
        for observer in &self.in_code.observers {
            limiter = limiter.observe(Arc::clone(observer));
        }
        let limiter = limiter.build()?;
        limiter.rules_in_force().tell_config_read(None);
        Ok(limiter)
    }

    /// The quota headers that the configuration chooses.
    pub fn headers(&self) -> QuotaHeaders {
        self.headers
    }

    /// A layer for the limiter, with the configuration's quota headers and rejection responses.
    pub fn layer(&self, limiter: Limiter) -> RateLimitLayer {
        RateLimitLayer::new(limiter)
            .headers(self.headers)
            .on_rejection(self.rejection)
    }
}

/// Reading the file has built this very limiter once, over another store.
fn invalid(error: ConfigError) -> StoreError {
    StoreError::with_source(StoreErrorKind::Configuration, error)
}

/// Leaves the store's address and the secret out.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Default)]
pub(super) struct InCode {
    pub(super) policies: Vec<Policy>,
    pub(super) observers: Vec<Arc<dyn Observer>>,
}

impl InCode {
    /// Adds a policy after checking it together with `rules`, so that an invalid one is refused
    /// here and not by a later reload.
    ///
    /// # Errors
    ///
    /// If the policy is invalid, or another one has its name.
    pub(super) fn add(&mut self, policy: Policy, rules: Rules) -> Result<(), ConfigError> {
        let rules = rules.with_policy(policy.clone());
        rules.validate(DEFAULT_TIMEOUT)?;
        self.policies.push(policy);
        Ok(())
    }

    pub(super) fn has_policy(&self, name: &str) -> bool {
        self.policies.iter().any(|policy| policy.name() == name)
    }
}
