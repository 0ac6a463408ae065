//! Where the counting happens: one question, one answer, one trip.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[cfg(any(feature = "memory", feature = "redis"))]
use crate::algorithm::Ask;
use crate::algorithm::{Action, Algorithm};
use crate::decision::{Decision, Decisions, Outcome};
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::time::{Micros, SECOND};

mod claim;
mod deny_cache;
mod duty;
mod failover;
mod fixed;
#[cfg(feature = "memory")]
pub(crate) mod memory;
mod owned;
mod quota;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod tries;

pub use deny_cache::DenyCache;
pub use failover::FailureMode;
pub(crate) use failover::{Failover, Trip};
pub use fixed::{AlwaysAllow, AlwaysDeny};
pub(crate) use quota::Leased;
pub use quota::QuotaLease;
#[cfg(feature = "redis")]
pub use redis::{RedisStore, RedisStoreBuilder};
pub(crate) use tries::{TRIES_IN_A_LIFE, Tries};

/// Counts permits, in one process or for a whole fleet.
///
/// What every store promises, and what `tests/store_contract.rs` holds each of them to:
///
/// 1. All checks of one question are decided in one atomic step. Either all of them fit and each
///    is carried out, or none is; only that a [`Penalty`](crate::Penalty) counts the denial of the
///    check before it. [Shadow checks](Check::is_shadow) are none of these: each is carried out when
///    all others fit and it fits itself, with those of all rates of its limit. Where no atomic step reaches all of them, as in a Redis
///    Cluster, those of one subject are decided in one, and what was taken is given back when those
///    of another deny.
/// 2. The decisions come in the order of the checks.
/// 3. A question that is answered with a denial leaves no trace but what a penalty counts.
/// 4. The answers are those of the algorithms in [`algorithm`](crate::algorithm), to the
///    microsecond, on one clock for all who share the store.
/// 5. Parameters travel with the check: a changed limit judges what was used before.
/// 6. A policy's name, the period of a further rate of its limit and a subject make a key of their
///    own; keys never influence each other.
/// 7. What is stored is forgotten by itself once it is equal to the untouched state, and not
///    before.
/// 8. An error means that no decision was taken here; whether the permits were, says its
///    [kind](crate::StoreErrorKind). Where one of several servers fails, or there is room for some keys
///    only, the decisions about the keys concerned may say so, as the failure modes of their checks have
///    it, while the others are decided. A denial that is known stands, whichever servers fail.
/// 9. An answer that is dropped before it is ready never leaves a lock or a place in a queue
///    behind.
/// 10. No shadow check changes what becomes of another check, whatever stands under its key: where it
///     cannot be answered, it alone is let through uncounted, as
///     [`Outcome::FailedOpen`](crate::Outcome::FailedOpen). Only that its key takes room, too.
pub trait Store: Send + Sync + 'static {
    /// Asks all checks of one request at once.
    ///
    /// Their keys are distinct, unless all of them renew leases. Actions that give something back
    /// never stand beside one that asks, so that they are never held up by a denial.
    fn ask(&self, checks: &[Check<'_>]) -> Answer;

    /// Finds out when the store answers again: the future ends as soon as an answer took no longer
    /// than `within`, the deadline of a decision. Until then it does what that takes, as connecting,
    /// at the pace that is good for the store.
    ///
    /// Asked for by who leaves the store alone because it gave no answers, and dropped when that is
    /// over. A store that cannot tell says `None`, and is asked a question now and then instead.
    fn recovered(&self, within: Duration) -> Option<Recovered> {
        let _ = within;
        None
    }

    /// Whether several servers stand behind it, each of which answers for some of the keys: then one that
    /// fails is no reason to leave the others alone, and failures open the circuit breaker only while
    /// nobody is answered, or where half of those who ask wait for the deadline.
    fn fails_in_parts(&self) -> bool {
        false
    }
}

/// One policy's question about one request; of a limit of several rates, one of them. The checks
/// of further rates come right behind that of the first.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    /// The policy that asks.
    pub policy: &'a PolicyId,
    /// Whose quota it is.
    pub subject: Subject,
    /// How to judge.
    pub algorithm: Algorithm,
    /// What to do.
    pub action: Action,
    /// Whether it only counts: it is carried out when it fits and all checks that are none fit, and
    /// it holds up nothing if it does not fit. The rates of one limit are all in shadow, or none of
    /// them is; a [`Penalty`](crate::Penalty) is exactly if the check before it is, and then bans in
    /// shadow.
    pub is_shadow: bool,
    /// What to decide when the store gives no answer.
    pub on_store_failure: FailureMode,
}

/// What of a policy a store needs: its name, and a number that stands for it. Clones share it.
#[derive(Clone)]
pub struct PolicyId(Arc<Identity>);

#[derive(Clone)]
struct Identity {
    name: Arc<str>,
    further_rate: Option<Micros>,
    group: Option<Group>,
    #[cfg(feature = "redis")]
    name_fingerprint: u128,
    fingerprint: u128,
    quota_lease: Option<QuotaLease>,
}

#[derive(Clone)]
struct Group {
    name: Arc<str>,
    fingerprint: u128,
}

impl PolicyId {
    /// A policy of this name.
    pub fn new(name: &str) -> Self {
        let fingerprint = Subject::of_text(name).to_u128();
        Self(Arc::new(Identity {
            name: name.into(),
            further_rate: None,
            group: None,
            #[cfg(feature = "redis")]
            name_fingerprint: fingerprint,
            fingerprint,
            quota_lease: None,
        }))
    }

    /// The same policy, whose permits may be taken in batches.
    pub(crate) fn with_quota_lease(self, quota_lease: Option<QuotaLease>) -> Self {
        self.with(|identity| identity.quota_lease = quota_lease)
    }

    /// The same policy in a [group](crate::Policy::group).
    #[must_use]
    pub fn in_group(self, group: &str) -> Self {
        let group = Group {
            name: group.into(),
            // No policy's name has a control character in it.
            fingerprint: Subject::of_text(&format!("\0{group}")).to_u128(),
        };
        self.with(|identity| identity.group = Some(group))
    }

    /// The same policy, of whose limit a [further rate](crate::Limit::and) has this period. What is
    /// used under it is stored apart.
    #[must_use]
    pub fn with_further_rate(&self, period: Micros) -> Self {
        // No policy's name has a control character in it.
        let text = format!("{}\0{}", self.name(), period.get());
        self.clone().with(|identity| {
            identity.further_rate = Some(period);
            // No single rate can say how late its permits may be.
            identity.quota_lease = None;
            identity.fingerprint = Subject::of_text(&text).to_u128();
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Identity)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.0.name)
    }

    /// The period of the further rate that this is about; `None` of a policy's first or only rate.
    pub fn further_rate(&self) -> Option<Micros> {
        self.0.further_rate
    }

    /// The group of policies that keep what they know of a subject in one place, where a store has
    /// such places.
    pub fn group(&self) -> Option<&str> {
        self.0.group.as_ref().map(|group| &*group.name)
    }

    /// 128 bits that stand for the group.
    pub(crate) fn group_fingerprint(&self) -> Option<u128> {
        self.0.group.as_ref().map(|group| group.fingerprint)
    }

    /// 128 bits that stand for the name, whichever the rate.
    #[cfg(feature = "redis")]
    pub(crate) fn name_fingerprint(&self) -> u128 {
        self.0.name_fingerprint
    }

    /// How its permits may be taken in batches, if they may.
    pub(crate) fn quota_lease(&self) -> Option<QuotaLease> {
        self.0.quota_lease
    }

    /// 128 bits that stand for the name and the period of a further rate, uniformly distributed.
    pub fn fingerprint(&self) -> u128 {
        self.0.fingerprint
    }
}

impl Check<'_> {
    /// What its policy's count of its subject is known by in this process: uniformly distributed, because
    /// the subject is.
    pub(crate) fn fingerprint(&self) -> u128 {
        self.subject.to_u128() ^ self.policy.fingerprint()
    }

    /// The same of the place of that count: a policy that is put into another group begins anew there.
    pub(crate) fn place_fingerprint(&self) -> u128 {
        self.fingerprint() ^ self.policy.group_fingerprint().unwrap_or(0)
    }

    /// The same of its state: another algorithm has another key, so that a changed policy starts anew, and
    /// two policies of one name never overwrite each other's state.
    #[cfg(any(feature = "memory", feature = "redis"))]
    pub(crate) fn state_fingerprint(&self) -> u128 {
        self.fingerprint() ^ u128::from(self.algorithm.number())
    }

    /// The decision where nobody has judged it: let through where its failure mode says so, or where it
    /// only counts.
    pub(crate) fn failed(&self, why: StoreErrorKind) -> Decision {
        let outcome = if self.is_shadow || self.on_store_failure == FailureMode::Allow {
            Outcome::FailedOpen(why)
        } else {
            Outcome::FailedClosed(why)
        };
        Decision {
            retry_after: Micros::from(SECOND),
            ..Decision::unasked(outcome, self.algorithm.quota())
        }
    }

    /// What it asks of its key.
    #[cfg(any(feature = "memory", feature = "redis"))]
    pub(crate) fn ask(&self) -> Ask<'_> {
        Ask {
            algorithm: &self.algorithm,
            action: &self.action,
            is_shadow: self.is_shadow,
            is_further_rate: self.policy.further_rate().is_some(),
        }
    }
}

impl fmt::Debug for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)?;
        match self.further_rate() {
            Some(period) => write!(f, "+{period:?}"),
            None => Ok(()),
        }
    }
}

/// An answer that is there, or one that is on its way.
///
/// A store that answers from memory does so at once: no allocation, no trip through a future.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
pub enum Answer {
    /// The answer.
    Ready(Result<Decisions, StoreError>),
    /// It takes a trip. The future owns all it needs, and may be dropped at any time.
    Pending(PendingAnswer),
}

/// The future of an [`Answer`] that takes a trip.
pub type PendingAnswer = Pin<Box<dyn Future<Output = Result<Decisions, StoreError>> + Send>>;

/// The future of [`Store::recovered`]. It owns all it needs, and may be dropped at any time.
pub type Recovered = Pin<Box<dyn Future<Output = ()> + Send>>;

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(answer) => f.debug_tuple("Ready").field(answer).finish(),
            Self::Pending(_) => f.write_str("Pending(..)"),
        }
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        (**self).ask(checks)
    }

    fn recovered(&self, within: Duration) -> Option<Recovered> {
        (**self).recovered(within)
    }

    fn fails_in_parts(&self) -> bool {
        (**self).fails_in_parts()
    }
}
