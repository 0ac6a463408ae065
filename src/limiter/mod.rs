//! `Limiter`: policies over a store, usable without HTTP.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "config")]
use std::{any::Any, sync::OnceLock};

use tokio::sync::Notify;

use self::failed_holds::FailedHolds;
use self::leases::Leases;
use self::passes::Passes;
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::error::{CheckError, ConfigError, StoreErrorKind};
use crate::key::{Key, KeyHasher, Subject};
use crate::mode::Mode;
use crate::observer::Observers;
use crate::policy::CompiledPolicy;
use crate::store::{Answer, Failover, Store};
use crate::task::InFlightWork;
use crate::trace::LogThrottles;

mod access_list;
mod acquire;
mod admit;
#[cfg(feature = "operator")]
mod blocks;
mod budget;
mod builder;
mod changes;
mod charge;
mod charges;
mod charging;
mod conclude;
mod control;
mod deny_list;
mod evaluate;
mod failed_holds;
mod giving_back;
mod hold;
mod in_force;
mod leases;
mod meter;
mod operations;
mod passes;
mod pending;
mod permit;
mod quota;
mod renewal;
mod report;
mod rules;
mod settle;

pub use self::access_list::AccessList;
#[cfg(any(feature = "config", feature = "operator"))]
pub(crate) use self::access_list::of_clients;
pub(crate) use self::acquire::{Delay, WaitingPolicy};
pub use self::builder::LimiterBuilder;
pub(crate) use self::charges::{Charges, RequestCharges};
pub use self::charging::Charging;
pub(crate) use self::conclude::Conclusion;
pub use self::control::PolicySummary;
#[cfg(feature = "operator")]
pub(crate) use self::deny_list::{Block, BlockedClient, MOST_BLOCKS, TooManyBlocks};
pub(crate) use self::hold::Holding;
pub(crate) use self::in_force::RulesInForce;
pub use self::meter::Meter;
pub(crate) use self::passes::CountedBy;
pub(crate) use self::pending::PendingEvaluation;
pub use self::permit::{Denied, Permit};
pub(crate) use self::rules::EarlyRejection;
pub use self::rules::Rules;
pub(crate) use crate::policy::RejectReason;

/// Enforces policies over a store, with or without HTTP. Clones share everything.
///
/// ```
/// use tower_throttle::{Limit, Limiter, MemoryStore, MINUTE, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = Policy::new("sms", Limit::sliding_log(3, MINUTE));
/// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
/// let phone = "+49 30 1234567";
/// for _ in 0..3 {
///     assert!(limiter.check("sms", phone).await?.is_allowed());
/// }
/// let denied = limiter.check("sms", phone).await?;
/// assert!(!denied.is_allowed());
/// assert!(denied.retry_after().unwrap() <= MINUTE);
///
/// assert_eq!(limiter.credit("sms", phone, 1).await?.remaining(), 1);
/// assert_eq!(limiter.peek("sms", phone).await?.remaining(), 1);
/// # Ok(())
/// # }
/// ```
///
/// Pass the key that the policy's extractor makes: [`Key::header("x-user",
/// b"alice")`](crate::Key::header) for `Header::new("x-user")`, and
/// [`Key::user("alice")`](crate::Key::user) for an [`Extension`](crate::Extension), not the text
/// alone.
///
/// Every method takes at most one round trip to the store; a credit takes one more if this process
/// has [prefetched](crate::Prefetch) permits of the key. Errors are returned only for an unknown
/// policy or one that does not support the method. A store failure is not an error: the policy's
/// [`FailureMode`](crate::FailureMode) decides, and [`Decision::store_failure`] returns the reason.
/// A charge, credit or reset was then not performed, or may not have been; under
/// `FailureMode::Local` it was performed in this process only.
#[derive(Clone)]
pub struct Limiter(Arc<Shared>);

struct Shared {
    store: Failover,
    /// Returns the prefetched permits.
    give_back_batches: Box<dyn Fn() + Send + Sync>,
    rules: Arc<RulesInForce>,
    is_off: AtomicBool,
    /// Wakes delayed callers.
    turned_off: Notify,
    observers: Observers,
    subjects: KeyHasher,
    leases: Leases,
    in_flight_work: InFlightWork,
    log_throttle: LogThrottles,
    passes: Passes,
    failed_holds: FailedHolds,
    /// The watcher of the configuration file, dropped with the limiter.
    #[cfg(feature = "config")]
    keeper: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Limiter {
    /// Builds a limiter with these policies or [`Rules`] over a store, with the defaults of
    /// [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// An error that names the invalid policy and field and what was expected.
    pub fn new(store: impl Store, rules: impl Into<Rules>) -> Result<Self, ConfigError> {
        Self::builder(store, rules).build()
    }

    /// A builder, for other settings than the defaults of [`new`](Self::new).
    pub fn builder<S: Store>(store: S, rules: impl Into<Rules>) -> LimiterBuilder<S> {
        LimiterBuilder::new(store, rules.into())
    }

    /// The rules in force, for code that replaces them without keeping the limiter alive.
    #[cfg(feature = "config")]
    pub(crate) fn rules_in_force(&self) -> Arc<RulesInForce> {
        Arc::clone(&self.0.rules)
    }

    /// Keeps a value as long as any clone of the limiter exists. Called once.
    #[cfg(feature = "config")]
    pub(crate) fn keep(&self, keeper: impl Send + Sync + 'static) {
        let kept = self.0.keeper.set(Box::new(keeper));
        debug_assert!(kept.is_ok(), "a limiter has one file");
    }

    fn named(&self, name: &str) -> Result<Arc<CompiledPolicy>, CheckError> {
        self.0.rules.load().named(name).cloned()
    }

    /// Performs an action that is not a check, whatever the policy's mode.
    async fn carry_out(
        &self,
        policy: &CompiledPolicy,
        subject: Subject,
        action: Action,
    ) -> Decision {
        if policy.rates.is_none() && action != Action::Reset {
            return Decision::of_nothing(0);
        }
        let store = &self.0.store;
        let mut checks = policy.own_checks(subject, action, Mode::Enforce);
        if action == Action::Reset && policy.can_be_held() {
            checks.push(policy.check_of_hold(subject, action));
        }
        let answer = store.ask(&checks);
        drop(checks);
        let decisions = decisions(answer).await;
        if policy.rates.is_some() {
            return policy.decision(&mut decisions.iter());
        }
        let failed = |decision: &&Decision| decision.store_failure().is_some();
        let nothing = Decision::of_nothing(0);
        let failed = decisions.iter().find(failed).copied();
        failed.map_or(nothing, |failed| Decision {
            limit: nothing.limit,
            window: nothing.window,
            ..failed
        })
    }

    fn subject(&self, key: &Key) -> Subject {
        self.0.subjects.of(key)
    }
}

/// The failure of an action, if it failed.
async fn failure(answer: Answer) -> Option<StoreErrorKind> {
    let decisions = decisions(answer).await;
    decisions.iter().find_map(Decision::store_failure)
}

async fn decisions(answer: Answer) -> Decisions {
    match answer {
        Answer::Ready(answer) => answered(answer),
        Answer::Pending(answer) => answered(answer.await),
    }
}

/// `Failover` is the outermost store, and turns every error into a decision.
fn answered<D, E: fmt::Debug>(answer: Result<D, E>) -> D {
    answer.expect("the failure modes answer when the store does not")
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Limiter")
            .field(&self.policy_names())
            .finish()
    }
}
