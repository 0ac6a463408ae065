//! `Health`: what an answer tells about the store.

use crate::error::{StoreError, StoreErrorKind};

/// What an answer tells about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::failover) enum Health {
    Works,
    Fails(StoreErrorKind),
    /// It says something about this process only.
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
            // The server is well: only this key is somebody else's, or there is no room for what is let in,
            // while those who are denied still are.
            StoreErrorKind::ForeignValue | StoreErrorKind::Full => Self::Works,
            // The store was not asked. Those questions that were in the way tell how it fares.
            StoreErrorKind::Overloaded | StoreErrorKind::BreakerOpen => Self::Unknown,
            // `BadReply` too: a proxy says so that it has lost its server.
            StoreErrorKind::Configuration
            | StoreErrorKind::Unreachable
            | StoreErrorKind::Interrupted
            | StoreErrorKind::TimedOut
            | StoreErrorKind::Busy
            | StoreErrorKind::BadReply => Self::Fails(kind),
        }
    }
}

/// Whether a failure of this kind is an answer, and not that there is none.
pub(in crate::store::failover) fn is_answered(failure: StoreErrorKind) -> bool {
    !matches!(
        failure,
        StoreErrorKind::Unreachable | StoreErrorKind::Interrupted | StoreErrorKind::TimedOut
    )
}
