//! Waiting for permits.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::Guard;
use tokio::time::{Instant, sleep, timeout};

use super::Limiter;
use super::evaluate::{AskedAs, Evaluation, KeyedCost};
use super::permit::{Denied, Permit};
use super::rules::CompiledRules;
use crate::algorithm::Wait;
use crate::error::CheckError;
use crate::key::Key;
use crate::policy::CompiledPolicy;
use crate::time::SECOND;

/// A policy whose permits can be waited for.
#[derive(Clone)]
pub(crate) struct WaitingPolicy {
    name: Arc<str>,
    /// Where it was found, in case it is removed.
    found_in: Arc<CompiledRules>,
}

/// A caller who waits for permits.
struct Waiting<'a> {
    limiter: &'a Limiter,
    policy: &'a WaitingPolicy,
    key: &'a Key,
    /// The policy's own by default.
    cost: Option<u64>,
    /// Whether the limit has to hold at every instant. The caller then asks until it is granted, so
    /// that no penalty counts a denial.
    is_strict: bool,
}

impl Limiter {
    /// Takes permits and waits until earlier calls allow this one. A call waits only for earlier
    /// calls; its own cost delays the next ones. So one call goes through when the limit is just
    /// used up, such as after a burst, and the following calls wait for it. Under a [leaky bucket
    /// queue](crate::Limit::leaky_bucket), a call waits until everything before it has drained. A
    /// cost of 0 takes nothing and does not wait.
    ///
    /// If the limit must hold at every instant, use a [`ThrottleLayer`](crate::ThrottleLayer), or
    /// [`Policy::max_wait`](crate::Policy::max_wait) for HTTP requests.
    ///
    /// Callers go on in order of arrival. There is no timeout, but a wait of more than ten years is
    /// denied. Needs a tokio runtime with time enabled. Dropping the future while it waits refunds
    /// the permits, unless somebody has taken permits since.
    ///
    /// In [shadow mode](crate::Mode::Shadow) nobody waits. A call that would have to wait is
    /// [`ShadowDenied`](crate::Outcome::ShadowDenied) and not counted.
    ///
    /// # Timeouts
    ///
    /// Do not put a timeout around this call if demand may exceed the limit, and do not drop it
    /// otherwise, such as in a handler whose client disconnects. A caller that times out keeps its
    /// place in the queue if others have arrived since. Under overload every place goes to a caller
    /// that has already left, and throughput falls to zero. Pass the timeout to
    /// [`try_acquire`](Self::try_acquire) instead: it takes nothing if the wait would be longer.
    /// Dropped callers then delay others by at most that timeout plus the cost of one call.
    ///
    /// # Denials
    ///
    /// A call is denied immediately if the key is banned or on the deny list, if the policy's limit
    /// [admits nothing](crate::Limit::nothing), and under
    /// [`FailureMode::Deny`](crate::FailureMode::Deny) while the store fails.
    ///
    /// ```
    /// use tower_throttle::{Denied, Limiter};
    ///
    /// async fn send(limiter: &Limiter, orders: &[&str]) -> Result<(), Denied> {
    ///     for order in orders {
    ///         let _permit = limiter.acquire("partner", "us", 1).await?;
    ///         println!("sending {order}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Denied`] if the call is denied, there is no policy of this name, or its limit does not
    /// support waiting: see [`Policy::max_wait`](crate::Policy::max_wait).
    pub async fn acquire(
        &self,
        policy: &str,
        key: impl Into<Key>,
        cost: u64,
    ) -> Result<Permit, Denied> {
        self.try_acquire(policy, key, cost, Duration::MAX).await
    }

    /// Like [`acquire`](Self::acquire), but waits no longer than `timeout`. If the wait would be
    /// longer, the call is denied immediately and takes nothing;
    /// [`Decision::delay`](crate::Decision::delay) returns how long the wait would have been.
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
    /// let _permit = limiter.try_acquire("partner", "us", 200, soon).await?;
    /// let denied = limiter.try_acquire("partner", "us", 1, soon).await.unwrap_err();
    /// assert!(denied.decision().unwrap().delay() > Duration::from_secs(1));
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
        cost: u64,
        timeout: Duration,
    ) -> Result<Permit, Denied> {
        let waiting = Waiting {
            limiter: self,
            policy: &self.waiting_policy(policy)?,
            key: &key.into(),
            cost: Some(cost),
            is_strict: false,
        };
        let mut permit = waiting.permit(timeout).await?;
        permit.begin_use();
        Ok(permit)
    }

    /// The policy of this name, if its permits can be waited for.
    pub(crate) fn waiting_policy(&self, policy: &str) -> Result<WaitingPolicy, CheckError> {
        let rules = self.0.rules.load();
        let found = rules.named(policy)?;
        if found.algorithm().is_some_and(|first| !first.can_wait()) {
            return Err(CheckError::CannotWait {
                name: policy.to_owned(),
            });
        }
        Ok(WaitingPolicy {
            name: found.id.shared_name(),
            found_in: Arc::clone(&rules),
        })
    }

    /// Takes one request's permits (the policy's cost by default) and waits for them. The limit
    /// holds at every instant, except for a cost above its capacity: that is taken as
    /// [`acquire`](Self::acquire) takes it. If the permits would be there only after `longest`, the
    /// request is denied without taking anything, and no penalty counts that: it is asked for
    /// again.
    ///
    /// If nobody can wait for the permits of the policy in force any more, it denies what does not
    /// fit, and bans nobody for it.
    pub(crate) async fn reserve(
        &self,
        policy: &WaitingPolicy,
        key: &Key,
        cost: Option<u64>,
        longest: Duration,
    ) -> Result<Permit, Denied> {
        let waiting = Waiting {
            limiter: self,
            policy,
            key,
            cost,
            is_strict: true,
        };
        waiting.permit(longest).await
    }
}

impl WaitingPolicy {
    /// The rules with the policy that now has this name, or those in which it was found if none has it
    /// now.
    pub(super) fn rules(&self, limiter: &Limiter) -> Guard<Arc<CompiledRules>> {
        let rules = limiter.0.rules.load();
        match rules.named(&self.name) {
            Ok(_) => rules,
            Err(_) => Guard::from_inner(Arc::clone(&self.found_in)),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Waiting<'_> {
    /// Waits until the permits are available; if dropped before, gives them back. Permits that this
    /// process granted for lack of an answer are asked for again once the store answers: a small share
    /// may take so long that callers who come after the store's return would overtake this one.
    async fn permit(&self, longest: Duration) -> Result<Permit, Denied> {
        let start = Instant::now();
        let mut permit = self.ask(longest, false).await?;
        loop {
            let delay = permit.delay();
            if delay.is_zero() {
                return Ok(permit);
            }
            let mut due = self.limiter.delay(delay);
            if !permit.is_local() {
                due.await;
                return Ok(permit);
            }
            permit = loop {
                if !self.does_store_answer_before(&mut due, &permit).await {
                    return Ok(permit);
                }
                let left = match self.is_strict {
                    true => longest,
                    false => longest.saturating_sub(start.elapsed()),
                };
                // A full store answers looks but fails takes. The place in the share's queue is kept
                // until the store has decided.
                match self.ask(left, true).await {
                    Ok(anew) if !anew.has_store_failed() => break anew,
                    Err(denied) if !denied.has_store_failed() => return Err(denied),
                    _ => {}
                }
            };
        }
    }

    async fn ask(&self, longest: Duration, of_store_alone: bool) -> Result<Permit, Denied> {
        let rules = self.policy.rules(self.limiter);
        let (asked, asked_as) = {
            let policy = rules.named(&self.policy.name)?;
            let cost = self.cost.unwrap_or_else(|| policy.default_cost());
            let asked_as = AskedAs {
                wait: Some(self.wait(policy, cost, longest)),
                until_granted: self.is_strict,
                of_store_alone,
                ..AskedAs::PERMIT
            };
            let asked = KeyedCost {
                policy: &self.policy.name,
                key: self.key,
                cost: Some(cost),
            };
            ([asked], asked_as)
        };
        let evaluation = Evaluation::under(rules);
        self.limiter
            .ask_for_permit(evaluation, &asked, asked_as)
            .await
    }

    fn wait(&self, policy: &CompiledPolicy, cost: u64, longest: Duration) -> Wait {
        // A queue lets one out at a time anyway, and denies requests that find it full.
        let queues = policy.algorithm().is_some_and(|first| first.queues());
        if !self.is_strict || queues || cost > policy.capacity() {
            Wait::Burst(longest.into())
        } else {
            Wait::Strict(longest.into())
        }
    }

    async fn does_store_answer_before(&self, due: &mut Delay, permit: &Permit) -> bool {
        let mut answered = pin!(until_store_answers(permit));
        poll_fn(|cx| match due.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(false),
            Poll::Pending => answered.as_mut().poll(cx).map(|()| true),
        })
        .await
    }
}

/// Asks every second whether the store answers again. If all callers wait here, nothing else would
/// notice; and a part of a store can come back without a change of the circuit breaker.
async fn until_store_answers(permit: &Permit) {
    loop {
        sleep(SECOND).await;
        if let Some(charges) = permit.charges()
            && charges.does_store_answer().await
        {
            return;
        }
    }
}

impl fmt::Debug for WaitingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingPolicy").field(&self.name).finish()
    }
}

/// Ready when the permits are there.
pub(crate) type Delay = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

impl Limiter {
    /// Waits this long, or until limiting is turned off: then nobody is held up.
    pub(crate) fn delay(&self, delay: Duration) -> Delay {
        let limiter = self.clone();
        Box::pin(async move {
            let mut turned_off = pin!(limiter.0.turned_off.notified());
            // From here on it is notified.
            turned_off.as_mut().enable();
            if limiter.is_on() {
                // Either the delay is over, or limiting was turned off.
                let _ = timeout(delay, turned_off).await;
            }
        })
    }
}
