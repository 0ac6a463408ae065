//! Detects requests that pass two layers of one limiter, so that its policies count them twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::trace::{self, SharedLogThrottle};

/// The number of requests to track. Layers are nested at start-up, so the first requests reveal the
/// mistake. Tracking all would cost allocations.
const FOLLOWED: u32 = 1_000;

/// How many more requests are tracked, and when the log last warned.
pub(super) struct Passes {
    left: AtomicU32,
    log_throttle: SharedLogThrottle,
}

impl Default for Passes {
    fn default() -> Self {
        Self {
            left: AtomicU32::new(FOLLOWED),
            log_throttle: SharedLogThrottle::default(),
        }
    }
}

/// In the extensions of a tracked request: the policies that have counted it.
#[derive(Clone)]
pub(crate) struct CountedBy(Arc<[Counting]>);

/// A policy of a limiter.
#[derive(Clone, PartialEq, Eq)]
struct Counting {
    limiter: usize,
    policy: Arc<str>,
}

impl Passes {
    /// Whether no more requests are tracked.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// The extension for a request that these policies have counted, after those of `before`. Warns
    /// if one of them has counted it already.
    #[cold]
    pub(super) fn follow(
        &self,
        limiter: usize,
        policies: impl Iterator<Item = Arc<str>>,
        before: Option<&CountedBy>,
    ) -> Option<CountedBy> {
        let now: Vec<_> = policies
            .map(|policy| Counting { limiter, policy })
            .collect();
        if now.is_empty() {
            return None;
        }
        // Other threads may have used up the rest.
        let ordering = Ordering::Relaxed;
        self.left
            .fetch_update(ordering, ordering, |left| left.checked_sub(1))
            .ok()?;
        let before = before.map_or(&[][..], |before| &before.0);
        if let Some(twice) = now.iter().find(|counting| before.contains(counting))
            && self.log_throttle.try_warn()
        {
            trace::warn!(
                policy = &*twice.policy,
                explanation = "the request has passed two layers of the same limiter: apply the \
                               layer once, or give each layer its own limiter",
                "a policy counts the same request twice"
            );
        }
        Some(CountedBy(before.iter().cloned().chain(now).collect()))
    }
}
