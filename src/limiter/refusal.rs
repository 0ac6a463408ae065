//! `Refusal`: why a request was not judged, and not let through.

use crate::observe::RefusalReason;
use crate::policy::{ReadyPolicy, Unreadable};

/// A request that no policy was asked about, and is not let through: because of which policy, when
/// it is one, and why.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) policy: Option<String>,
    pub(crate) reason: Unjudged,
}

/// Why no policy was asked about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unjudged {
    /// The client is on the list of those who are refused.
    Listed,
    /// What says where it comes from cannot be read, and there are those who are refused by that.
    BadAddress,
    /// It does not say whose it is, and the policy insists.
    NoKey,
    /// What says whose it is cannot be read, and there are those who are refused by that.
    BadKey,
    /// It states a cost that cannot be read.
    BadCost(String),
    /// The server does not provide what it takes.
    Misconfigured(String),
}

impl Refusal {
    pub(super) fn by(policy: &ReadyPolicy, reason: Unjudged) -> Self {
        Self {
            policy: Some(policy.id.name().to_owned()),
            reason,
        }
    }

    pub(super) fn of_nobody(reason: Unjudged) -> Self {
        Self {
            policy: None,
            reason,
        }
    }
}

impl Unjudged {
    /// Whether the list of those who are refused says so, which it does whatever a policy's mode.
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

impl From<Unreadable> for Unjudged {
    fn from(reason: Unreadable) -> Self {
        match reason {
            Unreadable::NoKey => Self::NoKey,
            Unreadable::BadKey => Self::BadKey,
            Unreadable::BadCost(text) => Self::BadCost(text),
            Unreadable::Misconfigured(text) => Self::Misconfigured(text),
        }
    }
}
