//! `Rules`: what a limiter enforces, which can be replaced while it is in use. `EarlyRejection`:
//! why a request was neither decided nor let through.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::access_list::AccessList;
use super::changes::{Changes, mode_change};
use crate::error::{CheckError, ConfigError};
use crate::key::{Key, KeyHasher, Subject};
use crate::mode::Mode;
use crate::observer::RefusalReason;
use crate::policy::{CompiledPolicy, Policy, RateSet, RejectReason};
use crate::request::{RequestHead, RequestMatcher};
use crate::store::FailureMode;

/// What a limiter enforces: its policies, the requests it leaves alone and the clients it refuses.
///
/// An array of policies or a `Vec` are such rules. [`Limiter::replace`](crate::Limiter::replace)
/// replaces those of a limiter.
///
/// ```
/// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy, Route, Rules};
///
/// let api = |permits| Policy::new("api", Limit::gcra(permits, MINUTE));
/// let limiter = Limiter::new(MemoryStore::new(), [api(100)])?;
/// limiter.replace(Rules::new([api(200)]).exempt(Route::get("/health")))?;
/// assert_eq!(limiter.summaries()[0].limit, "200 in 1 min");
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rules {
    policies: Vec<Policy>,
    on_store_failure: FailureMode,
    exempt: Vec<Arc<dyn RequestMatcher>>,
    denied: AccessList,
    allowed: AccessList,
}

impl Rules {
    /// Rules of these policies; without any, nobody is refused. All that apply to a request are
    /// decided together: if one denies, none is charged.
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Self {
        Self {
            policies: policies.into_iter().collect(),
            on_store_failure: FailureMode::default(),
            exempt: Vec::new(),
            denied: AccessList::new(),
            allowed: AccessList::new(),
        }
    }

    /// Sets what policies without a failure mode of their own decide when the store gives no
    /// answer: by default [`FailureMode::Allow`].
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = mode;
        self
    }

    /// Exempts requests from all policies: those of a [`Route`](crate::Route), or of a closure in
    /// [`extractor`](crate::extractor). Called several times, all of these are exempt.
    pub fn exempt(mut self, requests: impl RequestMatcher) -> Self {
        self.exempt.push(Arc::new(requests));
        self
    }

    /// Refuses these clients with 403, or `PERMISSION_DENIED` over gRPC, before anything is
    /// counted. By address, every request is refused, even an exempt one. By key, those requests
    /// are that a policy with such keys applies to, unless it is [off](crate::Mode::Off). A client
    /// on both lists is refused.
    ///
    /// If the list has [addresses](AccessList::addresses), a request whose address cannot be read
    /// ([`KeyError::Malformed`](crate::KeyError::Malformed)) is answered with 400, or
    /// `INVALID_ARGUMENT`, since it may come from one of them. If it has [keys](AccessList::keys),
    /// so is a request whose key a policy cannot read, such as a header that is sent twice, or a
    /// malformed host.
    pub fn deny(mut self, clients: AccessList) -> Self {
        self.denied = clients;
        self
    }

    /// Lets these clients through uncounted: by address past all policies; by key past the policies
    /// with such keys, while the others still count them and may deny.
    pub fn allow(mut self, clients: AccessList) -> Self {
        self.allowed = clients;
        self
    }

    /// These rules and a policy more.
    #[cfg(feature = "config")]
    pub(crate) fn with_policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// How many policies there are.
    #[cfg(feature = "config")]
    pub(crate) fn count_policies(&self) -> usize {
        self.policies.len()
    }

    /// Whether a limiter could be built of them. `timeout` is how long a decision may take.
    #[cfg(feature = "config")]
    pub(crate) fn validate(self, timeout: Duration) -> Result<(), ConfigError> {
        self.ready(timeout).map(drop)
    }

    /// Validates everything, the `timeout` included.
    pub(super) fn ready(self, timeout: Duration) -> Result<CompiledRules, ConfigError> {
        if timeout < Duration::from_millis(1) || timeout > Duration::from_secs(60) {
            return Err(ConfigError::out_of_range(
                "timeout",
                format_args!("{timeout:?}"),
                "1 ms to 60 s",
            ));
        }
        self.exempt
            .iter()
            .try_for_each(|requests| requests.validate())?;
        let mut names = HashSet::new();
        let mut policies: Vec<Arc<CompiledPolicy>> = Vec::with_capacity(self.policies.len());
        let mut readers = Vec::with_capacity(self.policies.len());
        for policy in self.policies {
            let policy = policy.ready(self.on_store_failure, timeout)?;
            let name = policy.id.name().to_owned();
            if names.contains(&name) {
                return Err(ConfigError::DuplicatePolicy { name });
            }
            names.insert(name);
            #[cfg(feature = "redis")]
            refuse_equal_record_ids(&policy, &policies)?;
            let alike = policies.iter().position(|other| policy.reads_key_as(other));
            readers.push(alike.unwrap_or(policies.len()));
            policies.push(Arc::new(policy));
        }
        Ok(CompiledRules {
            policies: policies.into(),
            readers: readers.into(),
            exempt: self.exempt.into(),
            denied: Arc::new(self.denied),
            allowed: Arc::new(self.allowed),
        })
    }
}

impl<I: IntoIterator<Item = Policy>> From<I> for Rules {
    fn from(policies: I) -> Self {
        Self::new(policies)
    }
}

/// In Redis, the states of a group's policies are told apart by 32 bits of a hash.
#[cfg(feature = "redis")]
fn refuse_equal_record_ids(
    policy: &CompiledPolicy,
    others: &[Arc<CompiledPolicy>],
) -> Result<(), ConfigError> {
    let Some(group) = policy.id.group() else {
        return Ok(());
    };
    let ids: Vec<_> = policy.record_ids().collect();
    let is_alike = |other: &&Arc<CompiledPolicy>| {
        other.id.group() == Some(group) && other.record_ids().any(|id| ids.contains(&id))
    };
    match others.iter().find(is_alike) {
        None => Ok(()),
        Some(other) => {
            let other = other.id.name();
            let reason = format!(
                "its state there could not be told from that of policy {other:?}, rename one of them"
            );
            let error = ConfigError::malformed("group", group, reason);
            Err(error.in_policy(policy.id.name()))
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("policies", &self.policies)
            .field("on_store_failure", &self.on_store_failure)
            .finish_non_exhaustive()
    }
}

/// Validated rules. A clone shares the policies.
#[derive(Clone)]
pub(super) struct CompiledRules {
    pub(super) policies: Arc<[Arc<CompiledPolicy>]>,
    /// For each policy, the first one that reads the same key.
    readers: Arc<[usize]>,
    exempt: Arc<[Arc<dyn RequestMatcher>]>,
    pub(super) denied: Arc<AccessList>,
    pub(super) allowed: Arc<AccessList>,
}

/// The subject of a request, as read by policies with the same extractor.
pub(super) struct ResolvedKey {
    /// The position of the first of these policies.
    reader: usize,
    key: Key,
    subject: Subject,
}

/// What a policy has read of a request.
pub(super) struct ResolvedRequest<'p> {
    pub(super) subject: Subject,
    /// The key in words, if the policy shows it.
    pub(super) shown: Option<Box<str>>,
    /// `None` if nothing is admitted.
    pub(super) rate_set: Option<Cow<'p, RateSet>>,
    pub(super) cost: u64,
}

#[cold]
fn unknown(policy: &str) -> CheckError {
    CheckError::UnknownPolicy {
        name: policy.to_owned(),
    }
}

impl CompiledRules {
    pub(super) fn named(&self, name: &str) -> Result<&Arc<CompiledPolicy>, CheckError> {
        Ok(self.find(name)?.1)
    }

    /// The policy of this name, with its position.
    #[inline]
    pub(super) fn find(&self, name: &str) -> Result<(usize, &Arc<CompiledPolicy>), CheckError> {
        let mut policies = self.policies.iter().enumerate();
        policies
            .find(|(_, policy)| policy.id.name() == name)
            .ok_or_else(|| unknown(name))
    }

    pub(super) fn is_exempt(&self, request: &RequestHead<'_>) -> bool {
        self.exempt.iter().any(|exempt| exempt.matches(request))
    }

    /// What the policy at this position asks about a request; `None` if it does not apply. `before`
    /// is what the policies before it have read.
    pub(super) fn read(
        &self,
        position: usize,
        request: &RequestHead<'_>,
        subjects: &KeyHasher,
        before: &mut Option<ResolvedKey>,
    ) -> Result<Option<ResolvedRequest<'_>>, RejectReason> {
        let (policy, reader) = (&self.policies[position], self.readers[position]);
        let resolved = match before {
            Some(resolved) if resolved.reader == reader => resolved,
            _ => {
                let Some(key) = policy.key(request, self.denied.has_keys())? else {
                    return Ok(None);
                };
                // Before the cost: for a denied key it does not matter.
                if self.denied.has_key(&key) {
                    return Err(RejectReason::Listed);
                }
                if self.allowed.has_key(&key) {
                    return Ok(None);
                }
                before.insert(ResolvedKey {
                    reader,
                    subject: subjects.of(&key),
                    key,
                })
            }
        };
        Ok(Some(ResolvedRequest {
            cost: policy.cost(request)?,
            rate_set: policy.rate_set(request, &resolved.key)?,
            subject: resolved.subject,
            shown: policy.shown(&resolved.key),
        }))
    }

    /// How a request that its address lets through is refused by the key of a policy.
    pub(super) fn refuses_key_of(&self, request: &RequestHead<'_>) -> Option<EarlyRejection> {
        if !self.denied.has_keys() {
            return None;
        }
        let asked =
            |policy: &&Arc<CompiledPolicy>| policy.mode() != Mode::Off && policy.applies(request);
        self.policies.iter().filter(asked).find_map(|policy| {
            let reason = match policy.key(request, true) {
                Ok(Some(key)) => self.denied.has_key(&key).then_some(RejectReason::Listed),
                Ok(None) => None,
                Err(reason) => Some(reason).filter(RejectReason::is_by_list),
            };
            Some(EarlyRejection::by(policy, reason?))
        })
    }

    /// Notes the modes of policies that differ from those of the rules before.
    pub(super) fn changes_since(&self, before: Option<&Self>, changes: &Changes) {
        let mode_in = |rules: Option<&Self>, name: &str| Some(rules?.named(name).ok()?.mode());
        let gone = before.into_iter().flat_map(|before| before.policies.iter());
        let gone = gone.filter(|policy| self.named(policy.id.name()).is_err());
        for policy in gone.chain(self.policies.iter()) {
            let name = policy.id.name();
            let (from, to) = (mode_in(before, name), mode_in(Some(self), name));
            if from != to {
                changes.push(mode_change(name, from, to));
            }
        }
    }

    /// Replaces other rules: a mode that was set while they were in force stays, unless the
    /// policy's own mode differs from what it was.
    pub(super) fn succeed(&self, before: &Self) {
        for policy in self.policies.iter() {
            if let Ok(before) = before.named(policy.id.name()) {
                policy.succeed(before);
            }
        }
    }
}

/// A request that was refused without asking any policy: why, and because of which policy, if any.
#[derive(Clone, Debug)]
pub(crate) struct EarlyRejection {
    pub(crate) policy: Option<String>,
    pub(crate) reason: RejectReason,
}

impl EarlyRejection {
    pub(super) fn by(policy: &CompiledPolicy, reason: RejectReason) -> Self {
        Self {
            policy: Some(policy.id.name().to_owned()),
            reason,
        }
    }

    pub(crate) fn of_nobody(reason: RejectReason) -> Self {
        Self {
            policy: None,
            reason,
        }
    }
}

impl RejectReason {
    /// Whether the list of refused clients says so, which holds in every mode.
    pub(super) fn is_by_list(&self) -> bool {
        matches!(self, Self::Listed | Self::BadAddress | Self::BadKey)
    }

    pub(super) fn in_a_word(&self) -> RefusalReason {
        match self {
            Self::Listed => RefusalReason::Listed,
            Self::BadAddress => RefusalReason::BadAddress,
            Self::NoKey | Self::BadKey => RefusalReason::MissingKey,
            Self::BadCost(_) => RefusalReason::BadCost,
            Self::Misconfigured(_) => RefusalReason::Misconfigured,
        }
    }
}
