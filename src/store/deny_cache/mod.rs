//! The deny cache: a subject that is known to be denied is answered here. A `Store` around a store
//! that takes a trip.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Check, Recovered, Store};
use crate::decision::Decisions;
use crate::per_thread::Spread;
use crate::time::Clock;

use self::denials::Denials;

pub(super) mod denials;
mod entry;
pub(super) mod noted;
mod set;
mod table;

/// Remembers the denials of the store that it is around, and answers a subject from memory that is
/// known to be denied. [`RedisStore`](crate::RedisStore) has one already; this is for a [`Store`] of
/// your own that takes a trip. Clones share what is remembered.
///
/// What was used up comes back with time alone, so a denial holds until the wait is over that came
/// with it, for the same limit. Answered from memory are thus
///
/// - denials and bans, until they end, and of costs that never fit, but for at most a second
///   ([`max_age`](Self::max_age));
/// - of `gcra`, the two buckets and `fixed_window` for any cost that does not fit, of the sliding ones
///   for the same cost and for any larger one;
/// - never denials of `concurrency`, which end at any time, and denials that a
///   [`Penalty`](crate::Penalty) has to count; of a ban from such a limit, the ban alone.
///
/// While the store fails they go before the [failure modes](crate::FailureMode): who is known to be denied
/// is, whatever the mode, also when that was learned while the question waited for its answer.
///
/// # What if a key changes?
///
/// What is taken, charged, given back or reset through this cache is seen at once, and so is a limit
/// that was changed here. What other processes give back or reset is seen within the most age; until
/// then their subject is denied as before. So it is where the store's clock steps ahead, as time is
/// measured here; and where a question to a [cluster](crate::RedisStore#clusters) about several subjects
/// fails, or is not waited for: who was denied one of them because of what it had taken is denied so long,
/// though that was given back. Where another subject denied it, that is seen with its answer.
///
/// # What is exact?
///
/// An answer from memory is the one that the store would give at that moment: denied, with the wait
/// that the key really has, the time of the trip added. It is too short only if another process has
/// taken, in the meantime, permits that did not suffice here; or, of a sliding limit, for a larger cost than was
/// asked about lately: it is denied for as long as the smaller one, and maybe for longer. How long, the store is asked
/// about a few, and then twice in the most age at most, so that nobody makes it work by another cost each time.
/// Approximate are, as they were when the store was asked last, what remains of a sliding limit for a cost above 1, and what is left of
/// policies that did not deny the request. [`Decision::is_remembered`](crate::Decision::is_remembered)
/// tells such answers apart.
///
/// A policy of which not even that is known is [not asked](crate::Outcome::NotAsked), so that nobody
/// gets around the memory by naming another subject to another policy each time. It may deny for longer
/// than the one that is known to deny: then the wait that the client is told is too short, and when it
/// is over the store is asked, and tells the rest.
/// [`Rejection::has_unasked_policies`](crate::Rejection::has_unasked_policies) tells such rejections.
///
/// A limit may deny for longer than the ban that its [`Penalty`](crate::Penalty) has brought, and for
/// how long depends on the cost and on the [limit of the request](crate::Policy::limit_by). Where that is
/// not known the store is asked in spite of the ban, but at most twice in the most age: so nobody makes it
/// work by asking for another cost each time. Who does is told the ban alone, which may be too short.
///
/// What is known of checks in [shadow](Check::is_shadow) answers only questions that have no others.
/// Their penalties do not hear of denials in questions that what is known of an enforced check
/// answers.
///
/// # Memory
///
/// It holds 65 536 denials, in a table that never grows: under a flood of subjects it forgets some,
/// which costs a trip each. It takes 14 MB at most, in pieces as denials come.
pub struct DenyCache<S> {
    inner: S,
    denials: Spread<Denials>,
}

impl<S: Store> DenyCache<S> {
    /// Around this store.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            denials: Spread::new(Denials::new(None)),
        }
    }

    /// How long a denial is remembered; a second unless said. While a subject goes on asking, the
    /// store is asked again twice in that time.
    #[must_use]
    pub fn max_age(self, age: Duration) -> Self {
        Self {
            denials: Spread::new(self.denials.with_max_age(age)),
            ..self
        }
    }

    /// Measures time by this clock, which is the store's own, instead of one that never steps back.
    /// For tests.
    #[must_use]
    pub fn clock_for_tests(self, clock: impl Clock) -> Self {
        Self {
            denials: Spread::new(self.denials.with_clock(Arc::new(clock))),
            ..self
        }
    }

    /// How many questions were answered from memory, those among them that the store left unanswered.
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

    fn fails_in_parts(&self) -> bool {
        self.inner.fails_in_parts()
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
