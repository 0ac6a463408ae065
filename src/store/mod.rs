//! For stores of your own: the trait that all stores implement, and what it takes to do so.
//!
//! **This module may change with any version before 1.0**, while the rest of the crate keeps to its
//! API. Whoever only uses a limiter needs none of it.
//!
//! A [`Store`] answers one question about a request in one atomic step. The question is a list of
//! [`Check`]s, of which each has an [`Algorithm`]: the arithmetic that `lua/` mirrors, and what
//! `MemoryStore` runs. It answers in two steps, so that several checks of one request are decided
//! all or nothing. [`read`](Algorithm::read) tells whether an [`Action`] fits the [`State`] and
//! writes nothing. [`commit`](Algorithm::commit) carries it out, and is called only for those
//! checks that [`committed`] names, and for those that do not fit, of which it repairs the state.
//! [`decide`] turns what was read into the [`Decisions`]. A [`DenyCache`] around a store that takes
//! a round trip answers for subjects that are known to be denied.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::StoreError;
#[cfg(feature = "redis")]
use policy_id::LAYOUT;

mod check;
mod deny_cache;
pub(crate) mod failover;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod fixed;
#[cfg(feature = "memory")]
pub(crate) mod memory;
pub(crate) mod policy_id;
mod prefetch;
#[cfg(feature = "redis")]
pub(crate) mod redis;

pub use crate::algorithm::{
    Acquire, Action, Algorithm, Ask, LeaseId, Reading, State, Wait, committed, decide,
};
pub use crate::decision::{Decisions, Receipt};
pub use check::Check;
pub use deny_cache::DenyCache;
#[cfg(feature = "operator")]
pub(crate) use failover::Consequences;
pub(crate) use failover::{Enforced, Failover, Outage, PendingDecisions};
#[cfg(test)]
pub(crate) use fixed::AlwaysDeny;
pub use policy_id::PolicyId;
#[cfg(feature = "redis")]
pub(crate) use policy_id::RecordId;
pub(crate) use policy_id::{FailureMode, Prefetch};
pub(crate) use prefetch::Prefetching;
#[cfg(feature = "config")]
pub(crate) use redis::{DEFAULT_PREFIX, Logins, RedisStore, RedisStoreBuilder};

/// How long a decision may take by default.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

/// Counts permits, in one process or for a whole fleet.
///
/// These are the promises of every store. `tests/store/contract.rs` holds the stores of this crate
/// to them, and `tests/algorithms/differential` to the fourth: there they decide the same histories as the
/// algorithms alone.
///
/// 1. All checks of one question are decided in one atomic step. Either all of them fit and each is
///    carried out, or none is, except that a [`Penalty`](crate::Penalty) counts the denial of the
///    check before it. [Shadow checks](Check::is_shadow) are apart: each is carried out if all
///    others fit and it fits itself, together with the checks of all rates of its limit. If no
///    atomic step reaches all checks, as in a Redis Cluster, those of one subject are decided in
///    one step, and what was taken is given back if those of another subject deny.
/// 2. The decisions come in the order of the checks.
/// 3. A question that is answered with a denial leaves no trace but what a penalty counts, and what
///    [repairs](Algorithm::commit) a step of the clock.
/// 4. The answers are those of [`Algorithm`], to the
///    microsecond, on one clock for all who share the store.
/// 5. Parameters travel with the check: a changed limit decides what was used before.
/// 6. A policy's name, the period of a further rate of its limit, a subject and the
///    [name](Algorithm::name) of the algorithm make a key; keys never influence
///    each other. The end of a hold by [`Feedback`](crate::Feedback) has a key as of a rate whose
///    period is zero. The check of a penalty has the policy and the subject of the limit before it, and
///    only the algorithm tells their keys apart. [`Check::fingerprint`] stands for all four.
/// 7. What is stored is forgotten by itself once it is equal to the untouched state, and not
///    before.
/// 8. An error means that no decision was made here; its [kind](crate::StoreErrorKind) says whether
///    permits were taken. If one of several servers fails, or there is room for some keys only, the
///    decisions about the keys concerned may say so, by the failure modes of their checks, while
///    the others are decided. A known denial stands, whichever servers fail.
/// 9. An answer that is dropped before it is ready never leaves a lock or a place in a queue
///    behind. A [pending](Answer::Pending) one has asked nothing and taken nothing before it is
///    first polled: if a request is dropped by then, nothing is given back.
/// 10. No shadow check changes the outcome of another check, whatever is stored under its key: if
///     it cannot be answered, it alone is let through uncounted, as
///     [`Outcome::FailedOpen`](crate::Outcome::FailedOpen). Its key takes room, though.
///
/// A store that is chosen at run time is a `Box<dyn Store>` or an `Arc<dyn Store>`.
///
/// # Examples
///
/// A store that keeps all promises but the seventh, as it forgets nothing:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use tower_throttle::store::{State, committed, decide};
/// use tower_throttle::store::{Answer, Check, Store};
/// use tower_throttle::{Clock, SystemClock};
/// # use tower_throttle::{Limit, Limiter, MINUTE, Outcome, Penalty, Policy};
///
/// #[derive(Default)]
/// struct Remembers(Mutex<HashMap<u128, State>>);
///
/// impl Store for Remembers {
///     fn ask(&self, checks: &[Check<'_>]) -> Answer {
///         let now = SystemClock.now();
///         let mut states = self.0.lock().unwrap();
///         let mut readings = Vec::new();
///         for check in checks {
///             let untouched = || check.algorithm.untouched();
///             let state = states.entry(check.fingerprint()).or_insert_with(untouched);
///             readings.push(check.algorithm.read(state, now, &check.action));
///         }
///         let asks = checks.iter().map(Check::ask);
///         let committed = committed(asks.clone(), &readings);
///         let each = checks.iter().zip(&mut readings).zip(committed);
///         // What does not fit is not carried out: its state may need a repair, so that the wait holds.
///         for ((check, reading), _) in each.filter(|((_, read), is)| *is || !read.fits) {
///             let state = states.get_mut(&check.fingerprint()).expect("it was read");
///             *reading = check.algorithm.commit(state, now, &check.action, *reading);
///         }
///         Answer::Ready(Ok(decide(asks, &readings)))
///     }
/// }
/// # let limit = Limit::gcra(1, MINUTE);
/// # let policy = Policy::new("login", limit).penalty(Penalty::after(2, MINUTE, MINUTE));
/// # let limiter = Limiter::new(Remembers::default(), [policy])?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let ask = || runtime.block_on(limiter.check("login", "alice")).unwrap().outcome();
/// # assert_eq!([ask(), ask(), ask()], [Outcome::Allowed, Outcome::Denied, Outcome::Banned]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: Send + Sync + 'static {
    /// Asks all checks of one request at once. Called in the course of the request, on a thread of
    /// its runtime: so it must not block. While the store is left alone, it is asked now and then
    /// whether it answers again, but one future at a time is polled for that.
    ///
    /// Their keys are distinct, unless all of them renew leases. Actions that give something back
    /// never share a question with one that asks, so a denial never holds them up.
    fn ask(&self, checks: &[Check<'_>]) -> Answer;

    /// Finds out when the store answers again. The future ends as soon as an answer took no longer
    /// than `within`, the deadline of a decision. Until then it does what that takes, such as
    /// connecting, at a pace that is good for the store.
    ///
    /// It is called while the store is left alone because it gave no answers, and dropped when that
    /// is over. A store that cannot tell returns `None`, and is asked a question now and then
    /// instead.
    fn recovered(&self, within: Duration) -> Option<Recovered> {
        let _ = within;
        None
    }

    /// The decisions that it knows without asking anybody, if that is enough.
    ///
    /// It is called when the question got no answer, or the store is left alone: what is known
    /// takes precedence over the [failure modes](FailureMode). A store that remembers nothing
    /// returns `None`.
    fn remembered(&self, checks: &[Check<'_>]) -> Option<Decisions> {
        let _ = checks;
        None
    }

    /// Waits until what the store gives back by itself, without anybody waiting for it, has been
    /// given back, and hurries that. The future then says whether all of it was; it is dropped when
    /// its time is over.
    ///
    /// [`Limiter::flush`](crate::Limiter::flush) calls it. A store that gives nothing back but what
    /// it is asked to returns `None`.
    fn given_back(&self) -> Option<GivenBack> {
        None
    }

    /// Whether several servers stand behind it, each of which answers for some of the keys. If so,
    /// a server that fails is no reason to leave the others alone: failures open the circuit
    /// breaker only while nobody is answered, or if half of the questions time out.
    fn fails_in_parts(&self) -> bool {
        false
    }

    /// Where whatever is done for its questions should run: their deadlines, renewals, and what is
    /// given back. `None` if that is wherever they are asked.
    #[doc(hidden)]
    fn runtime(&self) -> Option<Handle> {
        None
    }

    /// What operators call it in logs, such as `Redis at 127.0.0.1:6379`. Without credentials.
    fn name(&self) -> String {
        "the store".to_owned()
    }
}

/// An answer, or the future of one.
///
/// A store that answers from memory does so at once, without an allocation or a future.
#[expect(
    clippy::exhaustive_enums,
    reason = "an answer is there or on its way, and whoever asks a store has to handle both"
)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
pub enum Answer {
    /// The answer.
    Ready(Result<Decisions, StoreError>),
    /// It takes a round trip, which begins when the future is first polled. The future owns all it
    /// needs, and may be dropped at any time.
    Pending(PendingAnswer),
}

/// The future of an [`Answer`] that takes a trip.
pub type PendingAnswer = Pin<Box<dyn Future<Output = Result<Decisions, StoreError>> + Send>>;

/// The future of [`Store::recovered`]. It owns all it needs, and may be dropped at any time.
pub type Recovered = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The future of [`Store::given_back`]. It owns all it needs, and may be dropped at any time.
pub type GivenBack = Pin<Box<dyn Future<Output = bool> + Send>>;

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(answer) => f.debug_tuple("Ready").field(answer).finish(),
            Self::Pending(_) => f.write_str("Pending(..)"),
        }
    }
}

macro_rules! store_behind {
    ($($pointer:ident)+) => {$(
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn ask(&self, checks: &[Check<'_>]) -> Answer {
                (**self).ask(checks)
            }

            fn recovered(&self, within: Duration) -> Option<Recovered> {
                (**self).recovered(within)
            }

            fn remembered(&self, checks: &[Check<'_>]) -> Option<Decisions> {
                (**self).remembered(checks)
            }

            fn given_back(&self) -> Option<GivenBack> {
                (**self).given_back()
            }

            fn fails_in_parts(&self) -> bool {
                (**self).fails_in_parts()
            }

            fn name(&self) -> String {
                (**self).name()
            }

            fn runtime(&self) -> Option<Handle> {
                (**self).runtime()
            }
        }
    )+};
}
store_behind!(Arc Box);

#[cfg(test)]
mod tests;
