//! `Waits`: how long a decision waits for others.

use std::time::Duration;

/// How long a decision waits for others. The store does not know the limiter's deadline; the
/// defaults fit the default deadline.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    /// For a call in flight; after that, it is no longer waited for. Its caller may be busy with something
    /// else, or the server may be slow or far away; and most deadlines leave time for another call
    /// after this wait.
    pub(super) for_batches: Duration,
    /// For other nodes of a cluster, in addition to the time that the decided part took.
    pub(super) for_other_nodes: Duration,
}

impl Waits {
    pub(super) const USUAL: Self = Self {
        for_batches: Duration::from_millis(10),
        for_other_nodes: Duration::from_millis(10),
    };
}
