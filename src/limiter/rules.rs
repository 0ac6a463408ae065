//! `Rules`: what a limiter enforces, replaceable at run time. `EarlyRejection`: why a request was
//! rejected before any policy decided.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::access_list::AccessList;
use super::changes::{Changes, mode_change, share_change};
use super::deny_list::DenyList;
use crate::error::{CheckError, ConfigError};
use crate::key::{Key, KeyHasher, Subject};
use crate::mode::{Mode, Percent};
use crate::observer::RefusalReason;
use crate::policy::{CompiledPolicy, Policy, RateSet, RejectReason};
use crate::request::{RequestHead, RequestMatcher};
use crate::store::FailureMode;

/// What a limiter enforces: its policies, exempt requests, and the deny and allow lists.
///
/// An array or `Vec` of policies converts into rules. [`Limiter::replace`](crate::Limiter::replace)
/// replaces a limiter's rules.
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
    /// Creates rules with these policies; without any, no request is denied. All policies that
    /// apply to a request are decided together: if one denies, none is charged.
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Self {
        Self {
            policies: policies.into_iter().collect(),
            on_store_failure: FailureMode::default(),
            exempt: Vec::new(),
            denied: AccessList::new(),
            allowed: AccessList::new(),
        }
    }

    /// Sets the failure mode of policies that do not set their own: by default
    /// [`FailureMode::Allow`].
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = mode;
        self
    }

    /// Exempts requests from all policies: those that match a [`Route`](crate::Route) or a closure
    /// in [`extractor`](crate::extractor). If it is called several times, all matching requests are
    /// exempt.
    pub fn exempt(mut self, requests: impl RequestMatcher) -> Self {
        self.exempt.push(Arc::new(requests));
        self
    }

    /// Denies these clients with 403, or `PERMISSION_DENIED` over gRPC, before anything is counted.
    /// A denied address applies to every request, even an exempt one. A denied key applies to
    /// requests of policies that read such keys, unless the policy is [off](crate::Mode::Off). A
    /// client on both lists is denied.
    ///
    /// If the list contains [addresses](AccessList::addresses), a request whose address cannot be
    /// parsed ([`KeyError::Malformed`](crate::KeyError::Malformed)) is answered with 400, or
    /// `INVALID_ARGUMENT`, because it may come from one of them. If the list contains
    /// [keys](AccessList::keys), the same applies to a request whose key is malformed, such as a
    /// repeated header or a malformed host.
    pub fn deny(mut self, clients: AccessList) -> Self {
        self.denied = clients;
        self
    }

    /// Allows these clients without counting them. An address bypasses all policies. A key bypasses
    /// the policies that read such keys; other policies still count the request and may deny it.
    pub fn allow(mut self, clients: AccessList) -> Self {
        self.allowed = clients;
        self
    }

    /// Adds a policy.
    #[cfg(feature = "config")]
    pub(crate) fn with_policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// The number of policies.
    #[cfg(feature = "config")]
    pub(crate) fn count_policies(&self) -> usize {
        self.policies.len()
    }

    /// Validates the rules. `timeout` is the time that a decision may take.
    #[cfg(feature = "config")]
    pub(crate) fn validate(self, timeout: Duration) -> Result<(), ConfigError> {
        self.ready(timeout).map(drop)
    }

    /// Validates and compiles the rules. Also validates `timeout`.
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
            denied: DenyList::new(self.denied),
            allowed: Arc::new(self.allowed),
        })
    }
}

impl<I: IntoIterator<Item = Policy>> From<I> for Rules {
    fn from(policies: I) -> Self {
        Self::new(policies)
    }
}

/// In Redis, 32 bits of a hash identify the states of a group's policies.
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
                "its state would collide with that of policy {other:?} in this group, rename one of them"
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
    /// For each policy, the position of the first one that reads the same key.
    readers: Arc<[usize]>,
    exempt: Arc<[Arc<dyn RequestMatcher>]>,
    pub(super) denied: DenyList,
    pub(super) allowed: Arc<AccessList>,
}

/// The key of a request, as read by policies with the same extractor.
pub(super) struct ResolvedKey {
    /// The position of the first of these policies.
    reader: usize,
    key: Key,
    subject: Subject,
}

/// What a policy has read of a request.
pub(super) struct ResolvedRequest<'p> {
    pub(super) subject: Subject,
    /// The key in clear text, if the policy shows it.
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

    /// The data that the policy at this position reads of a request; `None` if it does not apply.
    /// `before` is what earlier policies have read.
    pub(super) fn read(
        &self,
        position: usize,
        request: &RequestHead<'_>,
        subjects: &KeyHasher,
        before: &mut Option<ResolvedKey>,
    ) -> Result<Option<ResolvedRequest<'_>>, RejectReason> {
        let (policy, reader) = (&self.policies[position], self.readers[position]);
        let denied = self.denied.all();
        let resolved = match before {
            Some(resolved) if resolved.reader == reader => resolved,
            _ => {
                let Some(key) = policy.key(request, denied.has_keys())? else {
                    return Ok(None);
                };
                // Before the cost: for a denied key it does not matter.
                if denied.has_key(&key, subjects) {
                    return Err(RejectReason::Listed);
                }
                if self.allowed.has_key(&key, subjects) {
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
    pub(super) fn refuses_key_of(
        &self,
        request: &RequestHead<'_>,
        subjects: &KeyHasher,
    ) -> Option<EarlyRejection> {
        let denied = self.denied.all();
        if !denied.has_keys() {
            return None;
        }
        let asked =
            |policy: &&Arc<CompiledPolicy>| policy.mode() != Mode::Off && policy.applies(request);
        self.policies.iter().filter(asked).find_map(|policy| {
            let reason = match policy.key(request, true) {
                Ok(Some(key)) => denied
                    .has_key(&key, subjects)
                    .then_some(RejectReason::Listed),
                Ok(None) => None,
                Err(reason) => Some(reason).filter(RejectReason::is_by_list),
            };
            Some(EarlyRejection::by(policy, reason?))
        })
    }

    /// Queues the mode changes relative to the rules before.
    pub(super) fn changes_since(&self, before: Option<&Self>, changes: &Changes) {
        let mode_in = |rules: Option<&Self>, name: &str| Some(rules?.named(name).ok()?.mode());
        let share_in =
            |rules: Option<&Self>, name: &str| Some(rules?.named(name).ok()?.enforced_for());
        let gone = before.into_iter().flat_map(|before| before.policies.iter());
        let gone = gone.filter(|policy| self.named(policy.id.name()).is_err());
        for policy in gone.chain(self.policies.iter()) {
            let name = policy.id.name();
            let (from, to) = (mode_in(before, name), mode_in(Some(self), name));
            if from != to {
                changes.push(mode_change(name, from, to));
            }
            // A new policy is enforced for all until its share is set.
            let (from, to) = (share_in(before, name), share_in(Some(self), name));
            if let Some(to) = to.filter(|to| *to != from.unwrap_or(Percent::ALL)) {
                changes.push(share_change(name, from.unwrap_or(Percent::ALL), to));
            }
        }
    }

    /// Continues the state of the rules before: a mode that was set at run time stays, unless the
    /// policy's own mode has changed, and blocked clients stay blocked.
    pub(super) fn succeed(&mut self, before: &Self) {
        self.denied.succeed(&before.denied);
        for policy in self.policies.iter() {
            if let Ok(before) = before.named(policy.id.name()) {
                policy.succeed(before);
            }
        }
    }
}

/// Why a request was rejected before any policy decided, and because of which policy, if any.
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
    /// Whether the deny list rejects the request, which applies in every mode.
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
