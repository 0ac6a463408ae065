//! `Health`: what an answer shows about the store.

use crate::error::{StoreError, StoreErrorKind};

/// What an answer shows about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::failover) enum Health {
    Works,
    Fails(StoreErrorKind),
    /// It shows something about this process only.
    Unknown,
}

impl Health {
    pub(in crate::store::failover) fn of_failure(failure: &StoreError) -> Self {
        match failure.is_of_this_process() {
            true => Self::Unknown,
            false => Self::of(failure.kind()),
        }
    }

    pub(in crate::store::failover) fn of(kind: StoreErrorKind) -> Self {
        match kind {
            // The server works. Only this key holds a foreign type, or there is no room for a new
            // one; denials still work.
            StoreErrorKind::ForeignValue | StoreErrorKind::Full => Self::Works,
            // The store was not asked. The questions that kept this one waiting will show how it
            // is.
            StoreErrorKind::Overloaded | StoreErrorKind::BreakerOpen => Self::Unknown,
            // `BadReply` too: that is how a proxy says that it has lost its server.
            StoreErrorKind::Configuration
            | StoreErrorKind::Unreachable
            | StoreErrorKind::Interrupted
            | StoreErrorKind::TimedOut
            | StoreErrorKind::Busy
            | StoreErrorKind::BadReply => Self::Fails(kind),
        }
    }
}

/// Whether a failure of this kind is an answer, rather than the lack of one.
pub(in crate::store::failover) fn is_answered(failure: StoreErrorKind) -> bool {
    !matches!(
        failure,
        StoreErrorKind::Unreachable | StoreErrorKind::Interrupted | StoreErrorKind::TimedOut
    )
}
