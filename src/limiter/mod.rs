//! `Limiter`: policies over a store, usable with no HTTP at all.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use self::leases::Leases;
use self::reserving::Reserving;
use self::taken::Taken;
use crate::algorithm::{Action, LeaseId, Patience, Take};
use crate::decision::{Decision, Decisions};
use crate::error::{CheckError, ConfigError, StoreError, StoreErrorKind};
use crate::key::{Key, Secret, Subject};
use crate::observe::{BreakerState, Observers};
use crate::policy::{Policy, ReadyPolicy};
use crate::store::{Answer, Breaker, Check, Store};
use crate::time::Micros;

mod builder;
mod held;
mod judge;
mod leases;
mod renewals;
mod reserving;
mod taken;

pub use self::builder::LimiterBuilder;
pub use self::held::Held;
pub(crate) use self::judge::{Judging, PendingVerdict, Refusal, Verdict};
pub(crate) use self::taken::TakenByRequest;

/// Policies over a store. Clones share everything.
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
/// limiter.credit("sms", phone, 1).await?;
/// assert_eq!(limiter.peek("sms", phone).await?.remaining(), 1);
/// # Ok(())
/// # }
/// ```
///
/// A key is that which the policy's extractor makes of a request: of `Header::new("x-user")` it is
/// [`Key::header("x-user", b"alice")`](crate::Key::header), not the text alone.
///
/// Every operation takes one trip to the store. Its only error is a policy that does not exist, or
/// that the operation is not for: a store that gives no answer is none, the policy's
/// [`FailureMode`](crate::FailureMode) decides, and [`Decision::store_failure`] tells. An operation
/// other than asking has then not been carried out, or it is not known whether it has.
#[derive(Clone)]
pub struct Limiter(Arc<Shared>);

struct Shared {
    store: Box<dyn Store>,
    breaker: Arc<Breaker>,
    policies: Vec<ReadyPolicy>,
    #[expect(dead_code, reason = "told of decisions")]
    observers: Observers,
    secret: Option<Secret>,
    leases: Leases,
}

impl Limiter {
    /// Policies over a store, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// Names the policy and the field that make no sense, and what would be right.
    pub fn new(
        store: impl Store,
        policies: impl IntoIterator<Item = Policy>,
    ) -> Result<Self, ConfigError> {
        Self::builder(store).policies(policies).build()
    }

    /// For all that [`new`](Self::new) leaves at its default.
    pub fn builder<S: Store>(store: S) -> LimiterBuilder<S> {
        LimiterBuilder::over(store)
    }

    /// The state of the circuit breaker in front of the store. [Closed](BreakerState::Closed) for
    /// ever over a store that answers from memory.
    pub fn breaker(&self) -> BreakerState {
        self.0.breaker.state()
    }

    /// Asks for one request's permits (the policy's cost) of this key.
    ///
    /// Does not wait: with a [leaky bucket](crate::Limit::leaky_bucket) that is a queue, the caller
    /// does, for as long as [`Decision::delay`] says. Permits of a
    /// [concurrency](crate::Limit::concurrency) limit are held in one lease with all that was taken
    /// so, which lapses a whole life after the last of them: take them by [`hold`](Self::hold),
    /// which gives each back.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub async fn check(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        let action = Action::take(policy.default_cost());
        Ok(self.ask(policy, self.subject(&key.into()), action).await)
    }

    /// As [`check`](Self::check), for this many permits; 0 only looks.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn check_cost(
        &self,
        policy: &str,
        key: impl Into<Key>,
        cost: u32,
    ) -> Result<Decision, CheckError> {
        self.carry_out(policy, key.into(), Action::take(cost)).await
    }

    /// Looks at what is left without taking anything. Always allowed, also during a ban, of which
    /// [`Decision::banned_for`] tells.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn peek(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.check_cost(policy, key, 0).await
    }

    /// Takes permits without asking; the limit may be passed, and what is over it has to come back
    /// before anything is allowed again. The decision tells what is left.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn charge(
        &self,
        policy: &str,
        key: impl Into<Key>,
        permits: u32,
    ) -> Result<Decision, CheckError> {
        let action = Action::Charge(permits);
        self.carry_out(policy, key.into(), action).await
    }

    /// Gives permits back, at most as many as are taken. The decision tells what is left.
    ///
    /// A window that has ended stays ended, and one that is open is not made longer. Of a
    /// [concurrency](crate::Limit::concurrency) limit those are given back that nobody holds a
    /// lease on, as [`charge`](Self::charge) and [`check`](Self::check) have taken them.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn credit(
        &self,
        policy: &str,
        key: impl Into<Key>,
        permits: u32,
    ) -> Result<Decision, CheckError> {
        let action = Action::Credit {
            permits,
            taken_at: None,
        };
        self.carry_out(policy, key.into(), action).await
    }

    /// Forgets all that is known of a key: what it has used, its denials, its ban. Leases of a
    /// [concurrency](crate::Limit::concurrency) limit are forgotten too, while what they were taken
    /// for runs on.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn reset(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.carry_out(policy, key.into(), Action::Reset).await
    }

    /// Takes permits as soon as all that others have taken has come back, and waits until then.
    /// What it takes beyond what there is, the next caller waits for: so the first of two does not
    /// wait for its own permits, whatever they cost.
    ///
    /// Callers who wait are let through in the order in which they came. There is no timeout,
    /// though a wait of more than ten years is denied. Needs a tokio runtime with time enabled.
    /// Dropping the future while it waits gives the permits back, unless somebody has taken permits
    /// since; then they stay taken.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name, or its limit is one that nobody can wait for: see
    /// [`Policy::max_wait`].
    pub async fn acquire(
        &self,
        policy: &str,
        key: impl Into<Key>,
        cost: u32,
    ) -> Result<Decision, CheckError> {
        self.try_acquire(policy, key, cost, Duration::MAX).await
    }

    /// As [`acquire`](Self::acquire), if it takes no longer than `timeout`. If it would, it is
    /// denied at once, without taking anything; [`Decision::delay`] says how long it would have
    /// been.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::{Limit, Limiter, MemoryStore, Policy, per_second};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = Limit::token_bucket(1, per_second(100));
    /// let limiter = Limiter::new(MemoryStore::new(), [Policy::new("partner", limit)])?;
    /// let soon = Duration::from_millis(50);
    /// assert!(limiter.try_acquire("partner", "us", 200, soon).await?.is_allowed());
    /// let denied = limiter.try_acquire("partner", "us", 1, soon).await?;
    /// assert!(!denied.is_allowed());
    /// assert!(denied.delay() > Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(
        &self,
        policy: &str,
        key: impl Into<Key>,
        cost: u32,
        timeout: Duration,
    ) -> Result<Decision, CheckError> {
        let key = key.into();
        let position = self.waitable(policy)?;
        let patience = Patience::UntilPaid(Micros::from(timeout));
        let reserving = self.reserve_with(position, key, cost, patience);
        Ok(reserving.await.waited().await)
    }

    /// Where the policy of this name stands, if its permits can be waited for.
    pub(crate) fn waitable(&self, policy: &str) -> Result<usize, CheckError> {
        let position = self.position(policy)?;
        if !self.0.policies[position].algorithm.can_wait() {
            return Err(CheckError::CannotWait {
                name: policy.to_owned(),
            });
        }
        Ok(position)
    }

    /// Takes one request's permits (the policy's cost unless said), which may be used when the
    /// decision's delay is over, and does not wait. The limit holds at every instant, but for a
    /// cost that is above all it ever has at once: that is taken as [`acquire`](Self::acquire)
    /// takes it.
    pub(crate) fn reserve(&self, position: usize, key: Key, cost: Option<u32>) -> Reserving {
        let policy = &self.0.policies[position];
        let cost = cost.unwrap_or_else(|| policy.default_cost());
        let longest = Micros::from(Duration::MAX);
        // A queue lets one out at a time whoever waits, and would deny those that find it full.
        let patience = if policy.algorithm.delays() || cost > policy.algorithm.capacity() {
            Patience::UntilPaid(longest)
        } else {
            Patience::UntilItFits(longest)
        };
        self.reserve_with(position, key, cost, patience)
    }

    fn reserve_with(&self, position: usize, key: Key, cost: u32, patience: Patience) -> Reserving {
        let limiter = self.clone();
        Reserving::new(async move { limiter.hold_at(position, &key, cost, patience).await })
    }

    /// Asks for one request's permits as [`check`](Self::check) does, and holds them: until the
    /// guard is dropped when the limit is one of [concurrency](crate::Limit::concurrency). Their
    /// lease is renewed until then, on the tokio runtime that this is called on: it needs time
    /// enabled, and somebody who drives it.
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("exports", Limit::concurrency(1));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
    /// let first = limiter.hold("exports", "alice").await?;
    /// assert!(first.is_allowed());
    /// assert!(!limiter.hold("exports", "alice").await?.is_allowed());
    /// drop(first);
    /// assert!(limiter.hold("exports", "alice").await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn hold(&self, policy: &str, key: impl Into<Key>) -> Result<Held, CheckError> {
        let key = key.into();
        let position = self.position(policy)?;
        let cost = self.0.policies[position].default_cost();
        let mut held = self.hold_at(position, &key, cost, Patience::None).await;
        held.go_on();
        Ok(held)
    }

    async fn hold_at(&self, position: usize, key: &Key, cost: u32, patience: Patience) -> Held {
        let policy = &self.0.policies[position];
        let subject = self.subject(key);
        let lease = policy.algorithm.lease().map(|_| LeaseId::new());
        let take = Take {
            cost,
            patience,
            lease,
        };
        let mut taken = Taken::asking(self.clone());
        let action = Action::Take(take);
        taken.add(position, &policy.check(subject, policy.algorithm, action));
        let decision = self.ask(policy, subject, action).await;
        taken.answered(std::iter::once(&decision));
        Held::new(decision, taken)
    }

    fn position(&self, name: &str) -> Result<usize, CheckError> {
        let mut policies = self.0.policies.iter();
        policies
            .position(|policy| policy.id.name() == name)
            .ok_or_else(|| CheckError::UnknownPolicy {
                name: name.to_owned(),
            })
    }

    fn named(&self, name: &str) -> Result<&ReadyPolicy, CheckError> {
        Ok(&self.0.policies[self.position(name)?])
    }

    async fn carry_out(
        &self,
        policy: &str,
        key: Key,
        action: Action,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        Ok(self.ask(policy, self.subject(&key), action).await)
    }

    async fn ask(&self, policy: &ReadyPolicy, subject: Subject, action: Action) -> Decision {
        let checks = policy.checks(subject, policy.algorithm, action);
        let answer = self
            .0
            .store
            .ask(&checks.collect::<SmallVec<[Check<'_>; 2]>>());
        policy.decision(&mut decisions(answer).await.iter())
    }

    fn subject(&self, key: &Key) -> Subject {
        key.subject(self.0.secret.as_ref())
    }
}

/// Why the store did not do what it was asked to, when it did not.
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

/// `Failover` stands outermost and turns every error into a decision.
fn answered(answer: Result<Decisions, StoreError>) -> Decisions {
    answer.expect("the failure modes answer when the store does not")
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.policies.iter().map(|policy| policy.id.name());
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}
