//! Finds requests that pass two layers of one limiter, so that its policies count them twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Limiter;
use super::judged::Judged;
use crate::request::RequestHead;
use crate::trace::{self, SharedWarned};

/// How many requests are followed. Layers are put around one another when a service starts, so its
/// first requests show it. Not all are followed, since an extension takes allocations.
const FOLLOWED: u32 = 1_000;

/// How many more requests are followed, and when the log last warned.
pub(super) struct Passes {
    left: AtomicU32,
    warned: SharedWarned,
}

impl Default for Passes {
    fn default() -> Self {
        Self {
            left: AtomicU32::new(FOLLOWED),
            warned: SharedWarned::default(),
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

impl Limiter {
    /// If the request is followed, what to put into its extensions when it goes on to the service.
    /// Warns if one of these policies has counted the request before.
    #[inline]
    pub(crate) fn follow(
        &self,
        judged: &Judged<'_>,
        request: &RequestHead<'_>,
    ) -> Option<CountedBy> {
        match self.0.passes.left.load(Ordering::Relaxed) {
            0 => None,
            _ => self.follow_one(judged, request),
        }
    }

    #[cold]
    fn follow_one(&self, judged: &Judged<'_>, request: &RequestHead<'_>) -> Option<CountedBy> {
        let now = judged.names().map(|policy| Counting {
            limiter: Arc::as_ptr(&self.0).addr(),
            policy,
        });
        let now: Vec<_> = now.collect();
        if now.is_empty() {
            return None;
        }
        let passes = &self.0.passes;
        let one_less = |left: u32| left.checked_sub(1);
        let ordering = Ordering::Relaxed;
        // Others may have taken the last ones.
        passes
            .left
            .fetch_update(ordering, ordering, one_less)
            .ok()?;
        let before: Option<&CountedBy> = request.extensions.get();
        let before = before.map_or(&[][..], |before| &before.0);
        if let Some(twice) = now.iter().find(|counting| before.contains(counting))
            && passes.warned.try_warn()
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
