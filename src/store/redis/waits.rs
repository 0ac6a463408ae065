//! `Waits`: how long a decision waits for others.

use std::time::Duration;

/// How long a decision waits for others. The store does not know by when its limiter decides: those unless said fit
/// the deadline that a decision has unless said.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    /// For a trip that others are on; then it is as if that was over. Their caller may have something else to do, or
    /// the server may be slow or far away; and most deadlines leave time for a trip after as much.
    pub(super) for_trips: Duration,
    /// For other nodes of a cluster, longer than what is decided took itself.
    pub(super) for_other_nodes: Duration,
}

impl Waits {
    pub(super) const USUAL: Self = Self {
        for_trips: Duration::from_millis(10),
        for_other_nodes: Duration::from_millis(10),
    };
}
