//! The methods for operators: changing the rules, the modes, the lists and the kill switch while
//! the limiter is in use; the store's state; a description of the policies; and flushing background
//! work.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::Limiter;
use super::access_list::AccessList;
use super::rules::Rules;
use crate::error::{CheckError, ConfigError};
use crate::mode::{Mode, Percent};
use crate::observer::{BreakerState, ChangeEvent};
use crate::policy::CompiledPolicy;
use crate::request::KeyKind;
use crate::store::{FailureMode, Outage};
use crate::task::InFlightGuard;

impl Limiter {
    /// Replaces all rules atomically: every request is decided by either the old or the new rules.
    ///
    /// Replacing rules does not reset usage, which is stored under the policy's name and the
    /// limit's algorithm. [`gcra`](crate::Limit::gcra),
    /// [`token_bucket`](crate::Limit::token_bucket) and
    /// [`leaky_bucket`](crate::Limit::leaky_bucket) store the time until all permits are back. So
    /// if you raise the rate but not the burst or capacity, a key that has used everything waits
    /// longer, by about capacity × (1/old rate − 1/new rate). Raise both by the same factor, or
    /// [`reset`](Self::reset) the keys that should go on immediately.
    ///
    /// A mode that was set by [`set_mode`](Self::set_mode) stays, unless the policy's own mode
    /// differs from what it was before; so does a share that was set by
    /// [`set_enforced_for`](Self::set_enforced_for). Lists do not stay: those of the new rules replace what
    /// [`set_denied`](Self::set_denied) and [`set_allowed`](Self::set_allowed) have set. Clients that an operator has
    /// blocked for a time stay blocked.
    ///
    /// # Errors
    ///
    /// An error that names the invalid policy and field; the old rules then stay in force.
    pub fn replace(&self, rules: impl Into<Rules>) -> Result<(), ConfigError> {
        self.0.rules.replace(rules.into())
    }

    /// The names of the policies in force, in their order.
    pub fn policy_names(&self) -> Vec<String> {
        let rules = self.0.rules.load();
        let policies = rules.policies.iter();
        policies.map(|policy| policy.id.name().to_owned()).collect()
    }

    /// The current mode of a policy.
    ///
    /// # Errors
    ///
    /// An error if there is no policy of this name.
    pub fn mode(&self, policy: &str) -> Result<Mode, CheckError> {
        Ok(self.0.rules.load().named(policy)?.mode())
    }

    /// Sets the mode of a policy, from the next request on.
    ///
    /// # Errors
    ///
    /// An error if there is no policy of this name.
    pub fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), CheckError> {
        self.0.rules.set_mode(policy, mode)
    }

    /// Changes the share of the subjects for whom a policy is [enforced](crate::Policy::enforce_for),
    /// from the next request on.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub fn set_enforced_for(&self, policy: &str, share: Percent) -> Result<(), CheckError> {
        self.0.rules.set_enforced_for(policy, share)
    }

    /// Replaces the clients that are refused; see [`Rules::deny`]. Clients that an operator has blocked
    /// for a time stay blocked.
    pub fn set_denied(&self, clients: AccessList) {
        self.0.rules.set_denied(clients);
    }

    /// Replaces the allow list; see [`Rules::allow`].
    pub fn set_allowed(&self, clients: AccessList) {
        self.0.rules.set_allowed(clients);
    }

    /// The kill switch: allows every request without counting it and without store calls, until
    /// limiting is [turned on](Self::turn_on) again. It applies to this process and does not reset
    /// usage.
    ///
    /// Delayed callers go on immediately: requests, callers that [acquire](Self::acquire) permits,
    /// and services behind a [`ThrottleLayer`](crate::ThrottleLayer).
    pub fn turn_off(&self) {
        self.switch(false);
        self.0.turned_off.notify_waiters();
    }

    /// Turns limiting on again.
    pub fn turn_on(&self) {
        self.switch(true);
    }

    /// The state of the store's circuit breaker. Always [closed](BreakerState::Closed) for a store
    /// that answers from memory.
    pub fn breaker_state(&self) -> BreakerState {
        self.0.store.breaker().state()
    }

    fn switch(&self, is_on: bool) {
        self.0.rules.change(|changes| {
            let was_on = !self.0.is_off.swap(!is_on, Ordering::Relaxed);
            if was_on != is_on {
                changes.push(ChangeEvent::Switched { is_on });
            }
        });
    }

    /// The store's name for operators, without credentials, such as `Redis at 127.0.0.1:6379`.
    pub fn store_name(&self) -> &str {
        self.0.store.breaker().store()
    }

    /// How long the circuit breaker has been open, and how many requests passed uncounted
    /// meanwhile; `None` while it is closed.
    pub fn outage(&self) -> Option<Outage> {
        self.0.store.breaker().outage()
    }

    /// Whether limiting is on, not [turned off](Self::turn_off).
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.0.is_off.load(Ordering::Relaxed)
    }
}

impl Limiter {
    /// Waits until all background work has reached the store: released permits of a
    /// [concurrency](crate::Limit::concurrency) limit, [settled](crate::Policy::settle) costs, and
    /// refunds of callers that no longer wait. First it returns [prefetched](crate::Prefetch)
    /// permits; later calls may prefetch again.
    ///
    /// Over a store with round trips, a background task refunds and releases permits, on the
    /// runtime where the permit or the response was dropped. If that runtime shuts down, the task
    /// is lost. A lease is then released on the runtime where it was acquired or, if that is the
    /// same one, expires later. So call this at the end of `main`, after the server has stopped and
    /// the last permit is dropped:
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MemoryStore, Policy};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let limiter = Limiter::new(MemoryStore::new(), [Policy::new("jobs", Limit::concurrency(1))])?;
    ///     let job = limiter.admit("jobs", "nightly").await?;
    ///     println!("at work");
    ///     drop(job);
    ///     if !limiter.flush().await {
    ///         eprintln!("some permits stay taken until their leases expire");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// While it waits, work that the store certainly did not do is retried immediately and then
    /// every few milliseconds, even while the circuit breaker is open. Releasing a lease is always
    /// retried, because doing so twice is harmless.
    ///
    /// It returns as soon as nothing is in flight, and at the latest after twice the limiter's
    /// [`timeout`](crate::LimiterBuilder::timeout): even if the store does not answer, if callers
    /// continue to release permits, or if nobody drives the task's runtime.
    ///
    /// Returns whether all work has reached the store; expired leases need not. On `false`, the
    /// work continues as long as the runtime runs, and another call waits for it again: a store
    /// that has just come back needs up to 0.6 s for a new connection. Permits that come back over
    /// time stay charged if their refund may have reached the store, because a second refund could
    /// create permits.
    pub async fn flush(&self) -> bool {
        let flush = self.0.in_flight_work.flush();
        (self.0.give_back_batches)();
        let own = flush.done();
        let stores = self.0.store.given_back();
        // Twice the timeout: after the answer to an abandoned call or batch, its permits are still
        // refunded.
        let end = Instant::now() + 2 * self.0.store.deadline();
        let mut is_done = pin!(async {
            // Both go on meanwhile.
            let is_done = own.await;
            match stores {
                Some(stores) => stores.await && is_done,
                None => is_done,
            }
        });
        // If no question takes a round trip, there may be no timers.
        match poll_fn(|cx| Poll::Ready(is_done.as_mut().poll(cx))).await {
            Poll::Ready(is_done) => is_done,
            Poll::Pending => timeout_at(end, is_done).await.unwrap_or(false),
        }
    }

    /// Counts a unit of background work until the guard is dropped.
    pub(super) fn in_flight_guard(&self) -> InFlightGuard {
        self.0.in_flight_work.begin()
    }

    /// Spawns background work.
    pub(super) fn spawn_in_flight<F>(&self, runtime: &Handle, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut in_flight_guard = self.in_flight_guard();
        runtime.spawn(async move {
            work.await;
            in_flight_guard.arrived();
        });
    }
}

/// A description of a policy for operators.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PolicySummary {
    /// The policy's name.
    pub name: String,
    /// The name of its algorithm, as in stored keys: `gcra`, `fixed_window`; `none` for a limit
    /// that [admits nothing](crate::Limit::nothing).
    pub algorithm: &'static str,
    /// The numbers of its limit: `100 in 1 min, burst 20`, or `10 in 1 s and 1000 in 1 h`.
    pub limit: String,
    /// The most permits that are available at once.
    pub capacity: u64,
    /// Its current mode.
    pub mode: Mode,
    /// The share of the subjects for whom it is [enforced](crate::Policy::enforce_for) in that mode.
    pub enforced_for: Percent,
    /// What its keys are made of.
    pub key: KeyKind,
    /// The requests that it applies to: `POST /login`. Empty if it applies to all.
    pub routes: Vec<String>,
    /// Its decision when the store fails.
    pub on_store_failure: FailureMode,
    /// A description of its [penalty](crate::Policy::penalty).
    pub penalty: Option<String>,
    /// The [group](crate::Policy::group) with which it shares stored keys.
    pub group: Option<String>,
    /// How much of the limit a process may [prefetch](crate::Policy::prefetch): `at most 10 % for 1
    /// s`.
    pub prefetch: Option<String>,
    /// When the response [settles](crate::Policy::settle) the cost, and the estimate before it if that
    /// is a fixed cost above 1: `at the end of the response, estimate 500`.
    pub settle: Option<String>,
}

impl Limiter {
    /// Describes the policies in force, in their order.
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy};
    ///
    /// let policy = Policy::new("api", Limit::gcra(100, MINUTE).burst(20));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
    /// assert_eq!(limiter.summaries()[0].limit, "100 in 1 min, burst 20");
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    pub fn summaries(&self) -> Vec<PolicySummary> {
        let rules = self.0.rules.load();
        let policies = rules.policies.iter();
        policies.map(|policy| PolicySummary::of(policy)).collect()
    }

    /// Describes the policy of this name.
    ///
    /// # Errors
    ///
    /// An error if there is no policy of this name.
    pub fn summary(&self, policy: &str) -> Result<PolicySummary, CheckError> {
        Ok(PolicySummary::of(self.0.rules.load().named(policy)?))
    }
}

impl PolicySummary {
    fn of(policy: &CompiledPolicy) -> Self {
        Self {
            name: policy.id.name().to_owned(),
            algorithm: policy.algorithm().map_or("none", |first| first.name()),
            limit: policy.limit().to_string(),
            capacity: policy.capacity(),
            mode: policy.mode(),
            enforced_for: policy.enforced_for(),
            key: policy.key_kind(),
            routes: policy.routes(),
            on_store_failure: policy.on_store_failure,
            penalty: policy.own_penalty().map(ToString::to_string),
            group: policy.id.group().map(str::to_owned),
            prefetch: policy.id.prefetch().map(|prefetch| prefetch.to_string()),
            settle: policy.settles().then(|| settle_in_words(policy)),
        }
    }
}

fn settle_in_words(policy: &CompiledPolicy) -> String {
    let when = match policy.settles_at_end() {
        true => "at the end of the response",
        false => "by the head of the response",
    };
    match policy.default_cost() {
        1 => when.to_owned(),
        cost => format!("{when}, estimate {cost}"),
    }
}
