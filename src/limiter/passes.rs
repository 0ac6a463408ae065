//! Finds requests that pass two layers of one limiter, so that its policies count them twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::trace::{self, SharedLogThrottle};

/// How many requests are followed. Layers are put around one another when a service starts, so its
/// first requests show it. Not all are followed, since an extension takes allocations.
const FOLLOWED: u32 = 1_000;

/// How many more requests are followed, and when the log last warned.
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

/// In the extensions of a request that is followed: the policies that have counted it.
#[derive(Clone)]
pub(crate) struct CountedBy(Arc<[Counting]>);

/// A policy of a limiter.
#[derive(Clone, PartialEq, Eq)]
struct Counting {
    limiter: usize,
    policy: Arc<str>,
}

impl Passes {
    /// Whether no more requests are followed.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// What to put into a request's extensions when these policies of a limiter have counted it, after
    /// those before. Warns if one of them has counted it before.
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
        // Others may have taken the last ones.
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
                               layer once, or give each layer a limiter with policies of its own",
                "a policy counts the same request twice"
            );
        }
        Some(CountedBy(before.iter().cloned().chain(now).collect()))
    }
}
