//! What a policy reads of a request: whether it is about it, whose it is, its limit and its cost.

use std::net::IpAddr;

use super::rates::Judges;
use super::ready::ReadyPolicy;
use super::{Cost, OnMissingKey};
use crate::key::Key;
use crate::request::{KeyError, RequestHead};

impl ReadyPolicy {
    /// Whether the policy is about this request.
    pub(crate) fn applies(&self, request: &RequestHead<'_>) -> bool {
        let on = &self.policy.on;
        on.is_empty() || on.iter().any(|on| on.matches(request))
    }

    /// Whose quota a request uses that the policy is about; `None` when it has no key and the
    /// policy does not mind. Where keys are denied it may not hide its own by being malformed.
    pub(crate) fn key(
        &self,
        request: &RequestHead<'_>,
        are_keys_denied: bool,
    ) -> Result<Option<Key>, Unreadable> {
        match self.policy.key.extract(request) {
            Ok(key) => Ok(Some(key)),
            Err(KeyError::Malformed) if are_keys_denied => Err(Unreadable::BadKey),
            Err(KeyError::Missing | KeyError::Malformed) => match self.policy.on_missing_key {
                OnMissingKey::Shared => Ok(Some(Key::missing())),
                OnMissingKey::Skip => Ok(None),
                OnMissingKey::Reject => Err(Unreadable::NoKey),
            },
            Err(KeyError::Misconfigured(text)) => Err(Unreadable::Misconfigured(text.into_owned())),
        }
    }

    /// Whether it is about the same subject as another one, whatever the request.
    pub(crate) fn reads_key_as(&self, other: &Self) -> bool {
        let (own, other) = (&self.policy, &other.policy);
        own.on_missing_key == other.on_missing_key && own.key.reads_the_same(&*other.key)
    }

    /// The address that stands in its keys for the client that has this one, as far as its extractor
    /// can tell.
    pub(crate) fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        self.policy.key.canonical_address(address)
    }

    /// What else it asks about a request with this key.
    pub(crate) fn read(&self, request: &RequestHead<'_>, key: &Key) -> Result<Read, Unreadable> {
        let cost = match &self.policy.cost {
            Cost::Fixed(cost) => *cost,
            Cost::Read(cost) => cost
                .cost(request)
                .map_err(|error| Unreadable::BadCost(error.to_string()))?,
        };
        let judges = self.judges_for(request, key)?;
        Ok(Read { judges, cost })
    }

    fn judges_for(&self, request: &RequestHead<'_>, key: &Key) -> Result<Judges, Unreadable> {
        let chosen = self.policy.limit_by.as_ref();
        let Some(limit) = chosen.and_then(|choose| choose.limit(request, key)) else {
            return Ok(self.judges());
        };
        if limit == self.policy.limit {
            return Ok(self.judges());
        }
        let judges = Judges::of(&limit)
            .map_err(|error| Unreadable::Misconfigured(format!("limit_by: {error}")))?;
        // What was found sound for the policy's own limit holds for all limits of its kind.
        let (own, chosen) = (self.algorithm.name(), judges.first.name());
        if chosen != own {
            return Err(Unreadable::Misconfigured(format!(
                "limit_by: got a limit of {chosen}, expected one of {own} as the policy's own"
            )));
        }
        let (own, chosen) = (self.further_rates.len(), judges.count_further());
        if chosen.is_some_and(|chosen| chosen != own) {
            return Err(Unreadable::Misconfigured(format!(
                "limit_by: got {limit}, expected as many rates as the policy's own limit has: {}",
                self.policy.limit
            )));
        }
        Ok(judges)
    }
}

/// What a policy has read of a request.
pub(crate) struct Read {
    pub(crate) judges: Judges,
    pub(crate) cost: u32,
}

/// Why a request cannot be judged at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It does not say whose it is, and the policy insists.
    NoKey,
    /// What says whose it is cannot be read, and there are those who are refused by that.
    BadKey,
    /// It states a cost that cannot be read.
    BadCost(String),
    /// The server does not provide what the key needs.
    Misconfigured(String),
}
