//! `EarlyRejection`: why a request was neither decided nor let through.

use crate::observer::RefusalReason;
use crate::policy::CompiledPolicy;

pub(crate) use crate::policy::RejectReason;

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
