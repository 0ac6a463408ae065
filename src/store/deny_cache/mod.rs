//! The deny cache: a `Store` around a store with round trips that answers for subjects that are known
//! to be denied.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;

use self::table::Denials;
use super::{Answer, Check, GivenBack, Recovered, Store};
use crate::decision::Decisions;
use crate::sharded::ShardedArc;

mod entry;
mod recall;
pub(super) mod table;
pub(super) mod ticket;

/// Remembers the denials of the store that it wraps, and answers from memory for subjects that are
/// known to be denied.
///
/// [`RedisStore`](crate::RedisStore) already contains one. Use this for your own [`Store`] if it needs
/// round trips. Clones share the remembered denials.
///
/// Permits come back only with time, so a denial holds until its wait is over. The cache answers:
///
/// - denials and bans until they end, and denials of costs that never fit, each for at most
///   [`max_age`](Self::max_age), by default a second;
/// - under `gcra`, both buckets and `fixed_window` every cost that does not fit; under the sliding
///   algorithms the denied cost and larger ones.
///
/// It never answers for `concurrency`, where a permit may come back at any time, nor if a
/// [`Penalty`](crate::Penalty) has to count the denial. During a ban it answers with the ban.
///
/// While the store fails, remembered denials take precedence over the
/// [failure modes](crate::FailureMode), also those that arrived while the question was in flight.
///
/// # What if a key changes?
///
/// The cache sees at once what is acquired, charged, given back, reset or limited differently through
/// it. It sees refunds and resets by other processes within `max_age`; until then the subject stays
/// denied. The same delay applies in two more cases:
///
/// - The store's clock is set, since the cache measures time with its own clock.
/// - A question to a [cluster](crate::RedisStore#clusters) about several subjects fails or is dropped.
///   Denials of other requests that its permits caused stay remembered, although the permits were
///   given back.
///
/// # What is exact?
///
/// An answer from memory is the one that the store would give at that moment. Its wait is the actual
/// wait plus the time of a round trip. The wait can be too short in two cases:
///
/// - Another process has taken permits since.
/// - A sliding limit is asked for a larger cost than the remembered one, which may have to wait
///   longer. The store is asked about a few such costs, and then at most twice in each `max_age`, so
///   that a client cannot load the store by varying the cost.
///
/// Two figures are as old as the last answer of the store: `remaining` and the next permit of a sliding
/// limit for costs above 1, and the remaining permits of policies that did not deny the request.
/// [`Decision::is_remembered`](crate::Decision::is_remembered) marks these answers.
///
/// If one policy is known to deny, policies of which nothing is known are
/// [not asked](crate::Outcome::NotAsked). Otherwise a client could get past the cache by naming a new
/// subject for another policy each time. Such a policy may deny for longer, so the reported wait may be
/// too short; the request after it asks the store.
/// [`Rejection::has_unasked_policies`](crate::Rejection::has_unasked_policies) marks these rejections.
/// For a cost that never fits the store is asked nevertheless, at most twice in each `max_age`.
///
/// A limit may deny for longer than the ban of its [`Penalty`](crate::Penalty), depending on the cost
/// and on the [limit of the request](crate::Policy::limit_by). If that wait is not known, the store is
/// asked in spite of the ban, at most twice in each `max_age`. Further requests get the wait of the ban
/// only, which may be too short.
///
/// Remembered denials of [shadow checks](Check::is_shadow) answer only questions without enforced
/// checks. If an enforced check is answered from memory, the penalties of shadow checks count nothing.
///
/// # Memory
///
/// The cache holds 65 536 denials in a table of bounded size. Under a flood of subjects it forgets
/// some, each of which then costs a round trip. It takes at most 14 MB, allocated as denials arrive.
pub struct DenyCache<S> {
    inner: S,
    denials: ShardedArc<Denials>,
}

impl<S: Store> DenyCache<S> {
    /// Wraps this store.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            denials: ShardedArc::new(Denials::new(None)),
        }
    }

    /// Sets how long a denial is remembered: by default 1 s. While a subject keeps asking, the store
    /// is asked again twice in that time.
    #[must_use]
    pub fn max_age(self, age: Duration) -> Self {
        Self {
            denials: ShardedArc::new(self.denials.with_max_age(age)),
            ..self
        }
    }

    /// Sets the clock, which must be that of the wrapped store, instead of a monotonic one. For
    /// tests only.
    #[must_use]
    #[cfg(any(test, feature = "test-util"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn clock_for_tests(self, clock: impl crate::time::Clock) -> Self {
        Self {
            denials: ShardedArc::new(self.denials.with_clock(clock)),
            ..self
        }
    }

    /// The number of questions answered from memory, including those that the store did not answer.
    pub fn hits(&self) -> u64 {
        self.denials.hits()
    }
}

impl<S: Store> Store for DenyCache<S> {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        Denials::ask(&self.denials, checks, &self.inner)
    }

    fn recovered(&self, within: Duration) -> Option<Recovered> {
        self.inner.recovered(within)
    }

    fn remembered(&self, checks: &[Check<'_>]) -> Option<Decisions> {
        let known = self.denials.recall(checks);
        known.or_else(|| self.inner.remembered(checks))
    }

    fn given_back(&self) -> Option<GivenBack> {
        self.inner.given_back()
    }

    fn fails_in_parts(&self) -> bool {
        self.inner.fails_in_parts()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn runtime(&self) -> Option<Handle> {
        self.inner.runtime()
    }
}

impl<S: Clone> Clone for DenyCache<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            denials: self.denials.clone(),
        }
    }
}

impl<S> fmt::Debug for DenyCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCache")
            .field("hits", &self.denials.hits())
            .finish_non_exhaustive()
    }
}
