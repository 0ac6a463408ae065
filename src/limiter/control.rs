//! What operators ask for: what can change while a limiter is in use, which is its rules, the modes
//! of its policies, its lists, and whether it limits at all; the state of its store; its policies
//! in words; and what is in flight to the store and nobody waits for.

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
use crate::mode::Mode;
use crate::observer::{BreakerState, ChangeEvent};
use crate::policy::CompiledPolicy;
use crate::request::KeyKind;
use crate::store::{FailureMode, Outage};
use crate::task::InFlightGuard;

impl Limiter {
    /// Replaces all rules in one step: a request is decided by the old rules or by the new ones, and
    /// there is no moment without limits.
    ///
    /// What was used stays used: it is stored by the policy's name and the limit's algorithm.
    /// [`gcra`](crate::Limit::gcra), [`token_bucket`](crate::Limit::token_bucket) and
    /// [`leaky_bucket`](crate::Limit::leaky_bucket) store it as the time until all of it is back.
    /// So when the rate is raised and the burst or capacity is not, a key that has used everything
    /// waits longer, by about capacity × (1/old rate − 1/new rate). Raise both by the same factor,
    /// or [`reset`](Self::reset) the keys that should go on at once.
    ///
    /// A mode that was set by [`set_mode`](Self::set_mode) stays, unless the policy's own mode
    /// differs from what it was before. Lists do not stay: those of the new rules replace what
    /// [`set_denied`](Self::set_denied) and [`set_allowed`](Self::set_allowed) have set.
    ///
    /// # Errors
    ///
    /// Names the policy and the field that make no sense; the old rules then stay in force.
    pub fn replace(&self, rules: impl Into<Rules>) -> Result<(), ConfigError> {
        self.0.rules.replace(rules.into())
    }

    /// The names of the policies in force, in their order.
    pub fn policy_names(&self) -> Vec<String> {
        let rules = self.0.rules.load();
        let policies = rules.policies.iter();
        policies.map(|policy| policy.id.name().to_owned()).collect()
    }

    /// The mode that a policy is in.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub fn mode(&self, policy: &str) -> Result<Mode, CheckError> {
        Ok(self.0.rules.load().named(policy)?.mode())
    }

    /// Changes the mode of a policy, from the next request on.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), CheckError> {
        self.0.rules.set_mode(policy, mode)
    }

    /// Replaces the clients that are refused; see [`Rules::deny`].
    pub fn set_denied(&self, clients: AccessList) {
        self.0
            .rules
            .set_list("denied", clients, |rules| &mut rules.denied);
    }

    /// Replaces the clients that are let through uncounted; see [`Rules::allow`].
    pub fn set_allowed(&self, clients: AccessList) {
        self.0
            .rules
            .set_list("allowed", clients, |rules| &mut rules.allowed);
    }

    /// The kill switch: every request passes uncounted, and the store is not asked, until limiting
    /// is [turned on](Self::turn_on) again. It applies to this process; what was used stays used.
    ///
    /// Delayed callers go on at once: requests, callers who [acquire](Self::acquire) permits, and
    /// services behind a [`ThrottleLayer`](crate::ThrottleLayer).
    pub fn turn_off(&self) {
        self.switch(false);
        self.0.turned_off.notify_waiters();
    }

    /// Turns limiting on again.
    pub fn turn_on(&self) {
        self.switch(true);
    }

    /// The state of the circuit breaker in front of the store. Always
    /// [closed](BreakerState::Closed) over a store that answers from memory.
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

    /// What operators call the store, without credentials, such as `Redis at 127.0.0.1:6379`.
    pub fn store_name(&self) -> &str {
        self.0.store.breaker().store()
    }

    /// How long the store has been left alone, and what has passed uncounted meanwhile; `None` while
    /// the circuit breaker is closed.
    pub fn outage(&self) -> Option<Outage> {
        self.0.store.breaker().outage()
    }

    /// Whether requests are limited, that is, not [turned off](Self::turn_off).
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.0.is_off.load(Ordering::Relaxed)
    }
}

impl Limiter {
    /// Waits until everything that was given back has reached the store: places of a
    /// [concurrency](crate::Limit::concurrency) limit, what a response
    /// [settled](crate::Policy::settle), and the permits of callers who no longer wait. First it gives
    /// back the permits that this process holds [in advance](crate::Prefetch); a later question may
    /// take more of them.
    ///
    /// Over a store that takes a round trip, the caller who gives back does not wait for it: a task does,
    /// on the runtime on which the permit or the response was dropped. A runtime that ends drops the task.
    /// The place is then given back on the runtime on which it was taken or, if that is the same one,
    /// stays taken until its lease lapses. So call this at the end of `main`, when the server has stopped
    /// and the last permit is dropped:
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
    ///         eprintln!("some places stay taken until their leases lapse");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// While it waits, whatever the store surely did not do is tried again at once and then every few
    /// milliseconds, even while the circuit breaker is open; so is freeing a place, whatever became of
    /// the last try, as that does no harm twice.
    ///
    /// It ends as soon as nothing is left to wait for, and takes at most twice as long as a decision
    /// [may](crate::LimiterBuilder::timeout): also if the store does not answer, if callers go on giving
    /// back, or if nobody drives the runtime on which the task runs. Returns whether all that was in
    /// flight has reached the store; leases that have lapsed meanwhile need not. If not, places are still
    /// given back as long as the runtime runs, and another call waits for that again: a store that has
    /// just come back needs up to 0.6 s for a new connection. Permits that come back with time stay used
    /// if they may have been given back, as doing so twice could create some.
    pub async fn flush(&self) -> bool {
        let flush = self.0.in_flight_work.flush();
        (self.0.give_back_batches)();
        let own = flush.done();
        let stores = self.0.store.given_back();
        // Twice the deadline: after the answer to an abandoned question or batch, what it took
        // is still given back.
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

    /// Counts something in flight, until the result is dropped.
    pub(super) fn in_flight_guard(&self) -> InFlightGuard {
        self.0.in_flight_work.begin()
    }

    /// Spawns work that nobody waits for.
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

/// A policy in force, described for operators.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PolicySummary {
    /// The policy's name.
    pub name: String,
    /// The name of its algorithm, as in stored keys: `gcra`, `fixed_window`; `none` of a limit that
    /// [admits nothing](crate::Limit::nothing).
    pub algorithm: &'static str,
    /// The numbers of its limit in words: `100 in 1 min, burst 20`, or `10 in 1 s and 1000 in 1 h`.
    pub limit: String,
    /// The most permits that are ever available at once.
    pub capacity: u64,
    /// The mode that it is in.
    pub mode: Mode,
    /// What its keys are made of.
    pub key: KeyKind,
    /// The requests that it applies to, in words: `POST /login`. Empty if it applies to all.
    pub routes: Vec<String>,
    /// What it decides when the store gives no answer.
    pub on_store_failure: FailureMode,
    /// Its [penalty](crate::Policy::penalty) in words.
    pub penalty: Option<String>,
    /// The [group](crate::Policy::group) that it shares stored keys with.
    pub group: Option<String>,
    /// How much of the limit a process may hold in advance, in words, if its permits are
    /// [prefetched](crate::Policy::prefetch): `at most 10 % for 1 s`.
    pub prefetch: Option<String>,
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

    /// Describes this policy.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
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
            key: policy.key_kind(),
            routes: policy.routes(),
            on_store_failure: policy.on_store_failure,
            penalty: policy.own_penalty().map(ToString::to_string),
            group: policy.id.group().map(str::to_owned),
            prefetch: policy.id.prefetch().map(|prefetch| prefetch.to_string()),
        }
    }
}
