//! The deny cache answers for subjects that are known to be denied. It is a `Store` around a store
//! that takes a round trip.

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
/// known to be denied. [`RedisStore`](crate::RedisStore) has one already; this is for a [`Store`]
/// of your own that takes a round trip. Clones share what is remembered.
///
/// What was used up comes back only with time, so a denial holds until its wait is over, for the
/// same limit. So these are answered from memory:
///
/// - denials and bans until they end, and denials of costs that never fit, but for at most a second
///   ([`max_age`](Self::max_age));
/// - with `gcra`, the two buckets and `fixed_window`, any cost that does not fit; with the sliding
///   algorithms, the same cost and any larger one;
/// - never denials of `concurrency`, which end at any time, and denials that a
///   [`Penalty`](crate::Penalty) has to count; during a ban from such a limit, only the ban.
///
/// While the store fails, remembered denials take precedence over the
/// [failure modes](crate::FailureMode): a subject that is known to be denied is denied in any mode,
/// even if that became known while the question waited for its answer.
///
/// # What if a key changes?
///
/// Permits that are taken, charged, given back or reset through this cache are seen at once, and so
/// is a limit that was changed here. What other processes give back or reset is seen within the
/// maximum age; until then the subject is denied as before. The same holds in two other cases. One
/// is that the store's clock is set, as time is measured here. The other is that a question to
/// a [cluster](crate::RedisStore#clusters) about several subjects fails, or is not waited for: a
/// subject that was denied because of what the question itself had taken is denied for that long,
/// though it was given back. If another subject denied it, the answer says so.
///
/// # What is exact?
///
/// An answer from memory is the one that the store would give at that moment: denied, with the
/// key's actual wait plus the time of the round trip. The wait is too short in two cases only. One
/// is that another process has meanwhile taken permits that did not suffice here. The other is a
/// sliding limit that was asked for a larger cost than lately: it is denied for as long as the
/// smaller cost, and perhaps for longer. The store is asked how long for a few such costs, and then
/// at most twice in the maximum age, so that nobody makes it work by choosing another cost each
/// time.
///
/// Two figures are approximate, those of the last time that the store was asked: what remains of a
/// sliding limit for a cost above 1 and when its next permit comes, and what is left of policies that
/// did not deny the request.
/// [`Decision::is_remembered`](crate::Decision::is_remembered) marks such answers.
///
/// A policy about which not even that is known is [not asked](crate::Outcome::NotAsked), so that
/// nobody gets around the cache by naming another subject to another policy each time. If the cost
/// never fits, the store is asked nevertheless, but at most twice in the maximum age. It may deny
/// for longer than the policy that is known to deny. Then the wait that the client is told is too
/// short, and when it is over the store is asked and tells the rest.
/// [`Rejection::has_unasked_policies`](crate::Rejection::has_unasked_policies) marks such
/// rejections.
///
/// A limit may deny for longer than the ban that its [`Penalty`](crate::Penalty) has caused; how
/// long depends on the cost and on the [limit of the request](crate::Policy::limit_by). If that is
/// not known, the store is asked in spite of the ban, but at most twice in the maximum age, so that
/// nobody makes it work by asking for another cost each time. A client that does is told the ban
/// only, which may be too short.
///
/// What is known about checks in [shadow](Check::is_shadow) answers only questions that have no
/// others. Their penalties do not learn of denials in questions that are answered by what is known
/// about an enforced check.
///
/// # Memory
///
/// It holds 65 536 denials, in a table of bounded size: under a flood of subjects it forgets some,
/// each of which then costs a round trip. It takes 14 MB at most, allocated in pieces as denials
/// come.
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

    /// Sets how long a denial is remembered: by default a second. While a subject keeps asking, the
    /// store is asked again twice in that time.
    #[must_use]
    pub fn max_age(self, age: Duration) -> Self {
        Self {
            denials: ShardedArc::new(self.denials.with_max_age(age)),
            ..self
        }
    }

    /// Measures time by this clock, the store's own, instead of one that never steps back. For
    /// tests.
    #[must_use]
    #[cfg(any(test, feature = "test-util"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn clock_for_tests(self, clock: impl crate::time::Clock) -> Self {
        Self {
            denials: ShardedArc::new(self.denials.with_clock(clock)),
            ..self
        }
    }

    /// How many questions were answered from memory, including those that the store left
    /// unanswered.
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
