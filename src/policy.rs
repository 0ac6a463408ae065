//! `Policy`: a named limit for a key, on certain requests, with a cost and a failure mode.

use std::fmt;
use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{CostExtractor, KeyError, KeyExtractor, RequestHead, RequestMatcher};
use crate::store::{FailureMode, PolicyId};

/// A named limit for a key, on certain requests, with a cost and a failure mode.
///
/// The name appears in quota headers, rejections and stored keys. Renaming a policy, or changing
/// its algorithm, starts its counts anew; changing the numbers does not.
///
/// ```
/// use tower_throttle::{FailureMode, Header, Limit, MINUTE, Policy, Route};
///
/// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE))
///     .by(Header::new("x-user"))
///     .on(Route::post("/login"))
///     .on_store_failure(FailureMode::Deny);
/// ```
#[derive(Clone)]
pub struct Policy {
    name: String,
    limit: Limit,
    key: Arc<dyn KeyExtractor>,
    on: Vec<Arc<dyn RequestMatcher>>,
    cost: Cost,
    on_missing_key: OnMissingKey,
    on_store_failure: Option<FailureMode>,
}

#[derive(Clone)]
enum Cost {
    Fixed(u32),
    Read(Arc<dyn CostExtractor>),
}

/// What a policy does with a request that does not say whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnMissingKey {
    /// All such requests share one bucket. The default: leaving a header out is no way around the
    /// limit.
    #[default]
    Shared,
    /// Such a request is answered with 400, or INVALID_ARGUMENT over gRPC.
    Reject,
    /// Such a request is not this policy's business: it passes uncounted.
    Skip,
}

impl Policy {
    /// A policy about everybody together, on every request, at a cost of 1, that lets requests
    /// pass when the store gives no answer.
    ///
    /// The name is 1 to 64 printable ASCII characters.
    pub fn new(name: impl Into<String>, limit: Limit) -> Self {
        Self {
            name: name.into(),
            limit,
            key: Arc::new(|_: &RequestHead<'_>| Some(Key::everybody())),
            on: Vec::new(),
            cost: Cost::Fixed(1),
            on_missing_key: OnMissingKey::default(),
            on_store_failure: None,
        }
    }

    /// Whose quota a request uses. A tuple of extractors makes one key of all they read.
    #[must_use]
    pub fn by(mut self, key: impl KeyExtractor) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// The requests that the policy is about; called several times, any of them.
    #[must_use]
    pub fn on(mut self, requests: impl RequestMatcher) -> Self {
        self.on.push(Arc::new(requests));
        self
    }

    /// How many permits each request costs; 1 unless said, at least 1, and no more than the limit
    /// ever holds.
    #[must_use]
    pub fn cost(mut self, permits: u32) -> Self {
        self.cost = Cost::Fixed(permits);
        self
    }

    /// How many permits a request costs, read from the request.
    #[must_use]
    pub fn cost_by(mut self, cost: impl CostExtractor) -> Self {
        self.cost = Cost::Read(Arc::new(cost));
        self
    }

    /// What to do with a request that does not say whose it is.
    #[must_use]
    pub fn on_missing_key(mut self, what: OnMissingKey) -> Self {
        self.on_missing_key = what;
        self
    }

    /// What to decide when the store gives no answer; the limiter's choice unless said, which is
    /// to let requests pass.
    #[must_use]
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = Some(mode);
        self
    }

    /// Checks everything, and readies the policy for work.
    pub(crate) fn ready(self, otherwise: FailureMode) -> Result<ReadyPolicy, ConfigError> {
        let name = self.name.clone();
        self.ready_unnamed(otherwise)
            .map_err(|error| error.in_policy(&name))
    }

    fn ready_unnamed(self, otherwise: FailureMode) -> Result<ReadyPolicy, ConfigError> {
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(printable) {
            return Err(ConfigError::out_of_range(
                "name",
                format_args!("{:?}", self.name),
                "1 to 64 printable ASCII characters",
            ));
        }
        self.key.validate()?;
        self.on.iter().try_for_each(|on| on.validate())?;
        let algorithm = Algorithm::try_from(&self.limit)?;
        match &self.cost {
            Cost::Fixed(0) => return Err(ConfigError::out_of_range("cost", 0, "1 to 4294967295")),
            Cost::Fixed(cost) if *cost > algorithm.capacity() => {
                return Err(ConfigError::out_of_range(
                    "cost",
                    cost,
                    "no more than the limit, or its burst, ever holds",
                ));
            }
            Cost::Fixed(_) => {}
            Cost::Read(cost) => cost.validate()?,
        }
        Ok(ReadyPolicy {
            id: PolicyId::new(&self.name),
            algorithm,
            on_store_failure: self.on_store_failure.unwrap_or(otherwise),
            policy: self,
        })
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// A policy that was found sound.
pub(crate) struct ReadyPolicy {
    pub(crate) id: PolicyId,
    pub(crate) algorithm: Algorithm,
    pub(crate) on_store_failure: FailureMode,
    policy: Policy,
}

impl ReadyPolicy {
    /// The cost outside of HTTP, where no request states one.
    pub(crate) fn default_cost(&self) -> u32 {
        match self.policy.cost {
            Cost::Fixed(cost) => cost,
            Cost::Read(_) => 1,
        }
    }

    /// Whether the policy is about this request.
    pub(crate) fn applies(&self, request: &RequestHead<'_>) -> bool {
        let on = &self.policy.on;
        on.is_empty() || on.iter().any(|on| on.matches(request))
    }

    /// The key and the cost of a request that the policy is about; `None` when it has none and the
    /// policy does not mind.
    pub(crate) fn read(&self, request: &RequestHead<'_>) -> Result<Option<(Key, u32)>, Unreadable> {
        let key = match (self.policy.key.extract(request), self.policy.on_missing_key) {
            (Ok(key), _) => key,
            (Err(KeyError::Missing), OnMissingKey::Shared) => Key::missing(),
            (Err(KeyError::Missing), OnMissingKey::Skip) => return Ok(None),
            (Err(KeyError::Missing), OnMissingKey::Reject) => return Err(Unreadable::NoKey),
            (Err(KeyError::Misconfigured(text)), _) => {
                return Err(Unreadable::Misconfigured(text.into_owned()));
            }
        };
        let cost = match &self.policy.cost {
            Cost::Fixed(cost) => *cost,
            Cost::Read(cost) => cost
                .cost(request)
                .map_err(|error| Unreadable::BadCost(error.to_string()))?,
        };
        Ok(Some((key, cost)))
    }
}

/// Why a request cannot be judged at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It does not say whose it is, and the policy insists.
    NoKey,
    /// It states a cost that cannot be read.
    BadCost(String),
    /// The server does not provide what the key needs.
    Misconfigured(String),
}
