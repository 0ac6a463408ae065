//! The three headers with one value each: the limit, the remaining permits and the reset. Drafts 3
//! to 6 define them, and so does `X-RateLimit`.

use std::cmp::Reverse;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::decision::Decision;
use crate::time::Micros;

/// The names of the limit, the remaining permits and the reset.
pub(super) type Names = [HeaderName; 3];

pub(super) static DRAFT_6: Names = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

pub(super) static X_RATELIMIT: Names = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The decision of the policy closest to exhaustion, the first among equals. `None` if no policy
/// can be shown. On a denial, only policies that deny count, because others do not explain it.
///
/// Concurrency limits and limits that admit nothing are never shown: they have no reset.
///
/// Ordered by the real number of remaining permits. The number shown is at most the limit, so a
/// large burst would hide a policy with fewer permits.
pub(super) fn tightest<'a>(
    each: impl Iterator<Item = &'a Decision> + Clone,
) -> Option<&'a Decision> {
    let is_allowed = each.clone().all(Decision::is_allowed);
    each.filter(|decision| decision.is_evaluated() && decision.counts_in_time())
        .filter(|decision| is_allowed || !decision.is_allowed())
        .min_by_key(|decision| decision.tightest_first())
}

/// The time until the whole quota is back, but not before the request would be allowed: a ban may
/// outlast the quota.
fn reset_after(decision: &Decision) -> Micros {
    let wait = decision.retry_after().map(Micros::from);
    decision.reset_after.max(wait.unwrap_or_default())
}

/// The values of the three headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset: u64,
}

impl Values {
    /// With the reset in seconds from now.
    pub(super) fn with_delta(decision: &Decision) -> Self {
        Self::new(decision, reset_after(decision).ceil_secs())
    }

    /// With the reset in seconds since the Unix epoch. The sum of now and the wait is rounded up,
    /// so that the quota is back at the time shown.
    pub(super) fn with_epoch(decision: &Decision, now: Micros) -> Self {
        Self::new(
            decision,
            now.saturating_add(reset_after(decision)).ceil_secs(),
        )
    }

    fn new(decision: &Decision, reset: u64) -> Self {
        Self {
            limit: decision.limit,
            // A burst can exceed the limit, but clients compute their usage as limit minus
            // remaining.
            remaining: decision.remaining.min(decision.limit),
            reset,
        }
    }

    /// The order of decisions, but by the shown values: nothing else is known about existing
    /// headers.
    fn tightest_first(self) -> impl Ord {
        (self.remaining, Reverse(self.reset))
    }

    /// The values of an inner layer or the service; `None` unless all three are numbers.
    pub(super) fn read(names: &Names, headers: &HeaderMap) -> Option<Self> {
        let number = |name| headers.get(name)?.to_str().ok()?.parse().ok();
        let [limit, remaining, reset] = names;
        Some(Self {
            limit: number(limit)?,
            remaining: number(remaining)?,
            reset: number(reset)?,
        })
    }

    /// Writes the three headers, unless existing ones are at least as tight. On a rejection
    /// existing ones stay, because they explain it.
    pub(super) fn put(self, names: &Names, headers: &mut HeaderMap, is_rejection: bool) {
        let is_tighter = |there: Self| self.tightest_first() < there.tightest_first();
        if Self::read(names, headers).is_some_and(|there| is_rejection || !is_tighter(there)) {
            return;
        }
        let values = [self.limit, self.remaining, self.reset];
        for (name, value) in names.iter().zip(values) {
            headers.insert(name, HeaderValue::from(value));
        }
    }
}
