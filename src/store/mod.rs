//! The trait that all stores implement, for stores of your own.
//!
//! **This module may change with any version before 1.0.** Programs that only use a limiter do not
//! need it.
//!
//! A [`Store`] decides one request in one atomic step. It gets a list of [`Check`]s, each with an
//! [`Algorithm`]: the arithmetic that `MemoryStore` runs and that `lua/` mirrors. An algorithm works in
//! two steps, so that the checks of one request are decided all or nothing:
//!
//! 1. [`read`](Algorithm::read) computes whether an [`Action`] fits the [`State`], and writes nothing. If fewer
//!    permits will do, [`granted`] computes from the readings how many there are.
//! 2. [`commit`](Algorithm::commit) carries the action out. Call it for the checks that [`committed`]
//!    names, and for those that do not fit, whose state it repairs.
//!
//! [`decide`] turns the readings into the [`Decisions`]. Wrap a store that needs round trips in a
//! [`DenyCache`], which answers from memory for subjects that are known to be denied.

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
    Acquire, Action, Algorithm, Ask, LeaseId, Reading, State, Wait, committed, decide, granted,
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
/// Every store keeps these promises. `tests/store/contract.rs` tests them for the stores of this
/// crate. `tests/algorithms/differential` compares their decisions with those of the algorithms.
///
/// 1. All checks of one question are decided in one atomic step. If all of them fit, each is carried
///    out; otherwise none is, except that a [`Penalty`](crate::Penalty) counts the denial of the
///    check before it. A [shadow check](Check::is_shadow) is carried out if all enforced checks fit
///    and all rates of its own limit fit. Where no atomic step reaches all checks, as in a Redis
///    Cluster, there is one step for each subject, and permits are given back if another subject
///    denies.
/// 2. The decisions come in the order of the checks.
/// 3. A denied question changes nothing, except that penalties count the denial and
///    [`commit`](Algorithm::commit) may repair a state after a step of the clock.
/// 4. The answers are those of [`Algorithm`], to the microsecond, on one clock for all processes that
///    share the store.
/// 5. Each check carries its parameters. A changed limit applies to the stored usage.
/// 6. The policy's name, the period of a further rate, the subject and the algorithm's
///    [name](Algorithm::name) make the key, and keys never influence each other. A penalty's check has
///    the policy and the subject of the limit before it; only the algorithm distinguishes their keys.
///    The end of a hold by [`Feedback`](crate::Feedback) has a key like that of a rate whose period is
///    zero. [`Check::fingerprint`] identifies the key.
/// 7. A state expires as soon as it equals the untouched state, and not before.
/// 8. An error means that no decision was made. Its [kind](crate::StoreErrorKind) says whether permits
///    may have been taken. If only some keys fail, because one of several servers fails or a table is
///    full, their decisions may be those of the failure modes while the others are decided. A known
///    denial holds, whichever servers fail.
/// 9. An answer that is dropped before it is ready leaves no lock and no place in a queue behind. A
///    [pending](Answer::Pending) answer asks and takes nothing before it is first polled, so a request
///    that is dropped before that gives nothing back.
/// 10. A shadow check never changes the outcome of another check, whatever is stored under its key. If
///     it cannot be answered, it alone passes uncounted, as
///     [`Outcome::FailedOpen`](crate::Outcome::FailedOpen). Its key does take memory.
///
/// To choose a store at run time, use a `Box<dyn Store>` or an `Arc<dyn Store>`.
///
/// # Examples
///
/// A store that keeps all promises but the seventh, since nothing expires:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
///
/// use tower_throttle::store::{State, committed, decide, granted};
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
///         let mut read = |check: &Check<'_>| {
///             let untouched = || check.algorithm.untouched();
///             let state = states.entry(check.fingerprint()).or_insert_with(untouched);
///             check.algorithm.read(state, now, &check.action)
///         };
///         let mut readings: Vec<_> = checks.iter().map(&mut read).collect();
///         // Where fewer permits will do than are asked for, as many are taken as there are.
///         let mut checks = checks.to_vec();
///         if let Some(permits) = granted(checks.iter().map(Check::ask), &readings) {
///             checks = checks.iter().map(|check| check.granting(permits)).collect();
///             readings = checks.iter().map(read).collect();
///         }
///         let asks = checks.iter().map(Check::ask);
///         let committed = committed(asks.clone(), &readings);
///         let each = checks.iter().zip(&mut readings).zip(committed);
///         // A check that does not fit is not carried out, but its state may need a repair.
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
    /// Decides all checks of one request.
    ///
    /// It is called on a thread of the request's runtime, so it must not block. While the circuit
    /// breaker is open, some questions are still sent as probes, one at a time.
    ///
    /// The checks have distinct keys, unless all of them renew leases. Actions that give permits back
    /// never share a question with one that acquires, so a denial never delays them.
    fn ask(&self, checks: &[Check<'_>]) -> Answer;

    /// Waits until the store answers again, that is, until an answer takes no longer than `within`,
    /// the deadline of a decision. Until then the future reconnects or probes, at a pace that does
    /// not burden the store.
    ///
    /// It is called while the circuit breaker is open for lack of answers, and dropped when the
    /// breaker closes. If it returns `None`, questions are sent as probes instead.
    fn recovered(&self, within: Duration) -> Option<Recovered> {
        let _ = within;
        None
    }

    /// Decides from memory, if the store remembers enough.
    ///
    /// It is called when a question got no answer, or when the circuit breaker is open. A remembered
    /// decision takes precedence over the [failure modes](FailureMode). A store that remembers
    /// nothing returns `None`.
    fn remembered(&self, checks: &[Check<'_>]) -> Option<Decisions> {
        let _ = checks;
        None
    }

    /// Gives back now what the store would give back in the background, and waits for that. The
    /// future returns whether everything was given back. It is dropped when its time is over.
    ///
    /// [`Limiter::flush`](crate::Limiter::flush) calls it. A store that gives nothing back in the
    /// background returns `None`.
    fn given_back(&self) -> Option<GivenBack> {
        None
    }

    /// Whether the store consists of several servers, each with some of the keys. If so, failures
    /// open the circuit breaker only while no server answers, or if half of the questions time out:
    /// one failing server does not keep the others from being asked.
    fn fails_in_parts(&self) -> bool {
        false
    }

    /// The runtime for work on behalf of the store's questions: deadlines, renewals of leases, and
    /// giving permits back. `None` for the runtime of each caller.
    #[doc(hidden)]
    fn runtime(&self) -> Option<Handle> {
        None
    }

    /// The store's name in logs, such as `Redis at 127.0.0.1:6379`. Without credentials.
    fn name(&self) -> String {
        "the store".to_owned()
    }
}

/// An answer, or the future of one.
///
/// A store that answers from memory returns [`Ready`](Self::Ready), without an allocation.
#[expect(
    clippy::exhaustive_enums,
    reason = "an answer is ready or pending, and every caller has to handle both"
)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
pub enum Answer {
    /// The answer.
    Ready(Result<Decisions, StoreError>),
    /// The answer takes a round trip, which begins when the future is first polled. The future owns
    /// all it needs, and may be dropped at any time.
    Pending(PendingAnswer),
}

/// The future of an [`Answer`] that takes a round trip.
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
