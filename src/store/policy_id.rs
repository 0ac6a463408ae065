//! `PolicyId`: what a store needs to know of a policy.

use std::fmt;
use std::sync::Arc;

use super::QuotaLease;
use crate::key::Subject;
use crate::time::Micros;

/// What of a policy a store needs: its name, and a number that stands for it. Clones share it.
#[derive(Clone)]
pub struct PolicyId(Arc<Identity>);

#[derive(Clone)]
struct Identity {
    name: Arc<str>,
    further_rate: Option<Micros>,
    group: Option<Group>,
    #[cfg(feature = "redis")]
    name_fingerprint: u128,
    fingerprint: u128,
    quota_lease: Option<QuotaLease>,
}

#[derive(Clone)]
struct Group {
    name: Arc<str>,
    fingerprint: u128,
}

impl PolicyId {
    /// A policy of this name.
    pub fn new(name: &str) -> Self {
        let fingerprint = Subject::of_text(name).to_u128();
        Self(Arc::new(Identity {
            name: name.into(),
            further_rate: None,
            group: None,
            #[cfg(feature = "redis")]
            name_fingerprint: fingerprint,
            fingerprint,
            quota_lease: None,
        }))
    }

    /// The same policy, whose permits may be taken in batches.
    pub(crate) fn with_quota_lease(self, quota_lease: Option<QuotaLease>) -> Self {
        self.with(|identity| identity.quota_lease = quota_lease)
    }

    /// The same policy in a [group](crate::Policy::group).
    #[must_use]
    pub fn in_group(self, group: &str) -> Self {
        let group = Group {
            name: group.into(),
            // No policy's name contains a control character.
            fingerprint: Subject::of_text(&format!("\0{group}")).to_u128(),
        };
        self.with(|identity| identity.group = Some(group))
    }

    /// The same policy, of whose limit a [further rate](crate::Limit::and) has this period. What is
    /// used under it is stored apart.
    #[must_use]
    pub fn with_further_rate(&self, period: Micros) -> Self {
        // No policy's name contains a control character.
        let text = format!("{}\0{}", self.name(), period.get());
        self.clone().with(|identity| {
            identity.further_rate = Some(period);
            // A single rate cannot tell how late its permits may be used.
            identity.quota_lease = None;
            identity.fingerprint = Subject::of_text(&text).to_u128();
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Identity)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.0.name)
    }

    /// The period of the further rate that this is about; `None` for a policy's first or only rate.
    pub fn further_rate(&self) -> Option<Micros> {
        self.0.further_rate
    }

    /// The group of policies that keep what they know of a subject in one place, where a store has
    /// such places.
    pub fn group(&self) -> Option<&str> {
        self.0.group.as_ref().map(|group| &*group.name)
    }

    /// 128 bits that stand for the group.
    pub(crate) fn group_fingerprint(&self) -> Option<u128> {
        self.0.group.as_ref().map(|group| group.fingerprint)
    }

    /// 128 bits that stand for the name, whatever the rate.
    #[cfg(feature = "redis")]
    pub(crate) fn name_fingerprint(&self) -> u128 {
        self.0.name_fingerprint
    }

    /// How its permits may be taken in batches, if they may.
    pub(crate) fn quota_lease(&self) -> Option<QuotaLease> {
        self.0.quota_lease
    }

    /// 128 bits that stand for the name and the period of a further rate, uniformly distributed.
    pub fn fingerprint(&self) -> u128 {
        self.0.fingerprint
    }
}

impl fmt::Debug for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)?;
        match self.further_rate() {
            Some(period) => write!(f, "+{period:?}"),
            None => Ok(()),
        }
    }
}
