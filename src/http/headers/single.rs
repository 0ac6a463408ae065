//! Three headers of one value each: a limit, what remains of it, and when it is reset. Drafts 3 to
//! 6 have them, and so has `X-RateLimit`.

use std::cmp::Ordering;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::seconds::counts_in_time;
use crate::decision::{Decision, Outcome};
use crate::time::Micros;

/// The names of the limit, of what remains, and of the reset.
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

/// The decision of the policy that is closest to exhaustion, the first of equals; `None` when none
/// has an answer that these headers can show. Of a denial it is one that denies, or none: what others
/// have left is no answer to why.
///
/// A limit on requests at the same time is not among them: it has no reset.
pub(super) fn tightest<'a>(
    each: impl Iterator<Item = &'a Decision> + Clone,
) -> Option<&'a Decision> {
    let is_allowed = each.clone().all(Decision::is_allowed);
    each.filter(|decision| decision.is_judged() && counts_in_time(decision))
        .filter(|decision| is_allowed || !decision.is_allowed())
        .reduce(
            |tightest, decision| match by_tightness(decision, tightest) {
                Ordering::Greater => decision,
                _ => tightest,
            },
        )
}

/// By the wait of what denies, then as it shows.
pub(super) fn by_tightness(a: &Decision, b: &Decision) -> Ordering {
    let as_shown = || Values::with_delta(a).by_tightness(&Values::with_delta(b));
    wait(a).cmp(&wait(b)).then_with(as_shown)
}

/// `None` of what is allowed, which is less than any wait.
fn wait(decision: &Decision) -> Option<Micros> {
    match decision.outcome {
        Outcome::NeverFits => Some(Micros::new(u64::MAX)),
        _ => decision.retry_after().map(Micros::from),
    }
}

/// How long until the whole quota is back, and not before the request would be allowed: a ban
/// outlasts the quota.
fn reset_after(decision: &Decision) -> Micros {
    let wait = decision.retry_after().map(Micros::from);
    decision.reset_after.max(wait.unwrap_or_default())
}

/// What the three headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset: u64,
}

impl Values {
    /// The reset in seconds from now.
    pub(super) fn with_delta(decision: &Decision) -> Self {
        Self::new(decision, reset_after(decision).ceil_secs())
    }

    /// The reset in seconds since the Unix epoch, rounded up together with the time that it is now:
    /// at the instant that is shown the quota is back.
    pub(super) fn with_epoch(decision: &Decision, now: Micros) -> Self {
        Self::new(
            decision,
            now.saturating_add(reset_after(decision)).ceil_secs(),
        )
    }

    fn new(decision: &Decision, reset: u64) -> Self {
        Self {
            limit: decision.limit.into(),
            // A burst can be above the limit; but clients take the difference of the two for what
            // they have used.
            remaining: decision.remaining.min(decision.limit).into(),
            reset,
        }
    }

    /// By the share that remains, the least being the tightest, then by the reset, the last being
    /// so.
    fn by_tightness(&self, other: &Self) -> Ordering {
        // A limit of 0 would be as tight as any other, and the order none.
        let share =
            |of: &Self, scale: &Self| u128::from(of.remaining) * u128::from(scale.limit.max(1));
        share(other, self)
            .cmp(&share(self, other))
            .then(self.reset.cmp(&other.reset))
    }

    /// What a layer further in, or the service, has written; `None` when that is not all three, in
    /// numbers.
    pub(super) fn read(names: &Names, headers: &HeaderMap) -> Option<Self> {
        let number = |name| headers.get(name)?.to_str().ok()?.parse().ok();
        let [limit, remaining, reset] = names;
        Some(Self {
            limit: number(limit)?,
            remaining: number(remaining)?,
            reset: number(reset)?,
        })
    }

    /// Writes the three, unless those that are there are as tight: each can only be there once. On
    /// a rejection those that are there tell why, and are kept.
    pub(super) fn put(self, names: &Names, headers: &mut HeaderMap, is_rejection: bool) {
        let is_tighter = |there: Self| self.by_tightness(&there).is_gt();
        if Self::read(names, headers).is_some_and(|there| is_rejection || !is_tighter(there)) {
            return;
        }
        let values = [self.limit, self.remaining, self.reset];
        for (name, value) in names.iter().zip(values) {
            headers.insert(name, HeaderValue::from(value));
        }
    }
}
