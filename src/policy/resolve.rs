//! What a policy reads of a request: whether it applies, the key, the limit and the cost.

use std::borrow::Cow;
use std::net::IpAddr;

use super::compiled::CompiledPolicy;
use super::rates::RateSet;
use super::{Cost, OnMissingKey};
use crate::algorithm::{Algorithm, Wait};
use crate::error::ConfigError;
use crate::key::Key;
use crate::limit::Limit;
use crate::request::{KeyError, KeyKind, RequestHead};

impl CompiledPolicy {
    /// Whether the policy applies to this request.
    pub(crate) fn applies(&self, request: &RequestHead<'_>) -> bool {
        let on = &self.policy.on;
        on.is_empty() || on.iter().any(|on| on.matches(request))
    }

    /// The key of a request to which the policy applies; `None` if it has none and the policy skips
    /// it. If keys are denied, a malformed key is refused, since it could hide a denied one.
    pub(crate) fn key(
        &self,
        request: &RequestHead<'_>,
        are_keys_denied: bool,
    ) -> Result<Option<Key>, RejectReason> {
        match self.policy.key.extract(request) {
            Ok(key) => {
                self.mistakes.found_key();
                if let Some(explanation) = self.policy.key.diagnose(request) {
                    self.mistakes.diagnosed(self.id.name(), explanation);
                }
                Ok(Some(key))
            }
            Err(KeyError::Misconfigured(text)) => {
                Err(RejectReason::Misconfigured(text.into_owned()))
            }
            Err(why) => self.without_key(why, are_keys_denied),
        }
    }

    fn without_key(
        &self,
        why: KeyError,
        are_keys_denied: bool,
    ) -> Result<Option<Key>, RejectReason> {
        let on_missing_key = match (why, self.policy.on_missing_key) {
            // By default it is a mistake: in one shared bucket users would deny each other.
            (KeyError::NotProvided(text), None) => {
                return Err(RejectReason::Misconfigured(text.into_owned()));
            }
            (KeyError::Malformed, _) if are_keys_denied => return Err(RejectReason::BadKey),
            (_, said) => said.unwrap_or_default(),
        };
        self.mistakes.found_no_key(self.id.name());
        match on_missing_key {
            OnMissingKey::Shared => Ok(Some(Key::missing())),
            OnMissingKey::Skip => Ok(None),
            OnMissingKey::Reject => Err(RejectReason::NoKey),
        }
    }

    /// Whether it reads the same key as another policy from every request.
    pub(crate) fn reads_key_as(&self, other: &Self) -> bool {
        let (own, other) = (&self.policy, &other.policy);
        own.on_missing_key == other.on_missing_key && own.key.reads_the_same(&*other.key)
    }

    /// What its keys are made of.
    pub(crate) fn key_kind(&self) -> KeyKind {
        self.policy.key.kind()
    }

    /// The requests that it applies to, in words; none if it applies to all.
    pub(crate) fn routes(&self) -> Vec<String> {
        self.policy.on.iter().map(|on| on.describe()).collect()
    }

    /// The address that its keys contain for the client with this address, as far as its extractor
    /// can tell.
    pub(crate) fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        self.policy.key.canonical_address(address)
    }

    /// The permits that a request costs.
    pub(crate) fn cost(&self, request: &RequestHead<'_>) -> Result<u64, RejectReason> {
        match &self.policy.cost {
            Cost::Fixed(cost) => Ok(*cost),
            Cost::Read(cost) => cost
                .cost(request)
                .map_err(|error| RejectReason::BadCost(error.to_string())),
        }
    }

    /// How long a request may be held up: no longer than its caller waits, if that is known.
    #[inline]
    pub(crate) fn wait(&self, request: &RequestHead<'_>, algorithm: &Algorithm) -> Wait {
        if self.wait == Wait::None && !algorithm.queues() {
            return Wait::None;
        }
        match (request.grpc_timeout(), self.wait) {
            (None, own) => own,
            (Some(timeout), Wait::Strict(longest)) => Wait::Strict(longest.min(timeout)),
            (Some(timeout), _) => Wait::Strict(timeout),
        }
    }

    /// The algorithms that decide a request with this key; `None` if nothing is admitted.
    #[inline]
    pub(crate) fn rate_set(
        &self,
        request: &RequestHead<'_>,
        key: &Key,
    ) -> Result<Option<Cow<'_, RateSet>>, RejectReason> {
        let chosen = self.policy.limit_by.as_ref();
        let chosen = chosen.and_then(|choose| choose(request, key));
        let Some(limit) = chosen.filter(|limit| *limit != self.policy.limit) else {
            return Ok(self.rates.as_ref().map(Cow::Borrowed));
        };
        self.rate_set_of(&limit)
            .map(|rates| rates.map(Cow::Owned))
            .map_err(|error| RejectReason::Misconfigured(format!("limit_by: {error}")))
    }

    fn rate_set_of(&self, limit: &Limit) -> Result<Option<RateSet>, String> {
        let refused = |error: ConfigError| error.to_string();
        let Some(rate_set) = RateSet::of(limit).map_err(refused)? else {
            return Ok(None);
        };
        let chosen = rate_set.first.name();
        // Where the own limit admits nothing, nothing was counted by another algorithm.
        if let Some(own) = self.algorithm().map(Algorithm::name)
            && chosen != own
        {
            return Err(format!(
                "got a limit of {chosen}, expected one of {own} as the policy's own"
            ));
        }
        if limit.rates().count() != self.count_rates() {
            return Err(format!(
                "got {limit}, expected as many rates as the policy's own limit has: {}",
                self.policy.limit
            ));
        }
        for rate in rate_set.chosen() {
            let refusal = self.policy.refuse_algorithm(rate, self.timeout);
            refusal.map_err(refused)?;
        }
        Ok(Some(rate_set))
    }
}

/// Why no policy was asked about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// The client is on the list of those to refuse.
    Listed,
    /// Some addresses are denied, and the request's cannot be read.
    BadAddress,
    /// The request has no key, and the policy rejects such requests.
    NoKey,
    /// Some keys are denied, and the request's cannot be read.
    BadKey,
    /// It states a cost that cannot be read.
    BadCost(String),
    /// The server does not provide what the extractor needs.
    Misconfigured(String),
}
