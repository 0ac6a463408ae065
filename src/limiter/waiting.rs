//! Permits that a caller waits for, or holds while something runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::leases::lease_for;
use super::reply::{Terms, by_mode};
use super::reserving::Reserving;
use super::taken::Taken;
use super::{Held, Limiter, decisions};
use crate::algorithm::{Action, Patience, Take};
use crate::decision::Decision;
use crate::error::CheckError;
use crate::key::Key;
use crate::mode::Mode;
use crate::policy::ReadyPolicy;
use crate::store::{FailureMode, Store as _};
use crate::time::Micros;

/// A policy whose permits can be waited for.
#[derive(Clone)]
pub(crate) struct Waitable(Arc<ReadyPolicy>);

/// What a request asks for.
#[derive(Clone, Copy)]
struct Wanted {
    cost: u32,
    patience: Patience,
    /// Whether it is asked for until it is granted, so that no penalty counts its denials.
    until_there: bool,
    of: Source,
}

/// Who may grant it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The store, or what the failure mode says.
    Any,
    /// The store alone, since the caller has a place in the local share. A second one there would
    /// be given back at once, or stay taken if somebody came in between.
    Store,
}

impl Limiter {
    /// Takes permits, and waits until no more is owed than the limit holds at once. A call does not
    /// wait for its own permits, whatever they cost: the next calls do. So one call passes a limit
    /// that is just used up, as after a burst, and is paid for afterwards. Under a
    /// [queue](crate::Limit::leaky_bucket), a call waits until everything taken before it is back.
    /// A cost of 0 takes nothing and does not wait.
    ///
    /// If the limit has to hold at every instant, use a [`ThrottleLayer`](crate::ThrottleLayer), or
    /// [`Policy::max_wait`](crate::Policy::max_wait) for requests over HTTP.
    ///
    /// Waiting callers are let through in the order in which they came. There is no timeout, but a
    /// wait of more than ten years is denied. Needs a tokio runtime with time enabled. Dropping the
    /// future while it waits gives the permits back, unless somebody has taken permits since; then
    /// they stay taken.
    ///
    /// In [shadow](crate::Mode::Shadow) nobody waits. A call that would have to is
    /// [`ShadowDenied`](crate::Outcome::ShadowDenied) and not counted.
    ///
    /// # Timeouts
    ///
    /// Do not put a timeout around this call if demand may exceed the limit, and let nothing else
    /// drop it then, as a handler is dropped when its client disconnects. By the time a caller
    /// gives up, somebody has taken permits after it, so its permits stay taken. Everybody behind
    /// waits for permits that nobody uses, and gives up in turn; the wait grows without end, and
    /// nobody gets through. Give the timeout to [`try_acquire`](Self::try_acquire) instead: it
    /// takes nothing if the wait would be longer. What dropped callers leave behind is then never
    /// more than that timeout and the cost of one call.
    ///
    /// # Denials
    ///
    /// A call is denied at once if the key is banned or on the deny list, if the policy's limit
    /// [admits nothing](crate::Limit::nothing), and under
    /// [`FailureMode::Deny`](crate::FailureMode::Deny) while the store gives no answer. A denied
    /// caller has no permits, and must not go on as if it had.
    ///
    /// ```
    /// use tower_throttle::{AlwaysDeny, CheckError, Limit, Limiter, MINUTE, Policy, per_second};
    ///
    /// /// How many of them were sent.
    /// async fn send(limiter: &Limiter, orders: &[&str]) -> Result<usize, CheckError> {
    ///     for (sent, order) in orders.iter().enumerate() {
    ///         if !limiter.acquire("partner", "us", 1).await?.is_allowed() {
    ///             // Not again at once: it would be a loop without a pause.
    ///             return Ok(sent);
    ///         }
    ///         println!("sending {order}");
    ///     }
    ///     Ok(orders.len())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limit = Limit::token_bucket(1, per_second(10));
    /// let store = AlwaysDeny::retry_after(MINUTE);
    /// let limiter = Limiter::new(store, [Policy::new("partner", limit)])?;
    /// assert_eq!(send(&limiter, &["coffee", "tea"]).await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The compiler warns of a decision that is not looked at. With `?` alone it is not:
    ///
    /// ```compile_fail
    /// #![deny(unused_must_use)]
    /// use tower_throttle::{CheckError, Limiter};
    ///
    /// async fn send(limiter: &Limiter, orders: &[&str]) -> Result<(), CheckError> {
    ///     for order in orders {
    ///         limiter.acquire("partner", "us", 1).await?;
    ///         println!("sending {order}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no policy of this name, or its limit does not support waiting: see
    /// [`Policy::max_wait`](crate::Policy::max_wait).
    pub async fn acquire(
        &self,
        policy: &str,
        key: impl Into<Key>,
        cost: u32,
    ) -> Result<Decision, CheckError> {
        self.try_acquire(policy, key, cost, Duration::MAX).await
    }

    /// Like [`acquire`](Self::acquire), if the wait is no longer than `timeout`. Otherwise it is
    /// denied at once and takes nothing; [`Decision::delay`] says how long the wait would have
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
        let policy = self.waitable(policy)?;
        let ask = |timeout, of| {
            let wanted = Wanted {
                cost,
                patience: Patience::UntilPaid(Micros::from(timeout)),
                until_there: false,
                of,
            };
            self.reserve_with(self.in_force(&policy), key.clone(), wanted)
        };
        let start = Instant::now();
        let held = ask(timeout, Source::Any).await;
        let ask_anew = || ask(timeout.saturating_sub(start.elapsed()), Source::Store);
        let mut held = held.once_there(ask_anew).await;
        held.go_on();
        Ok(*held.decision())
    }

    /// The policy of this name, if its permits can be waited for.
    pub(crate) fn waitable(&self, policy: &str) -> Result<Waitable, CheckError> {
        let found = self.named(policy)?;
        if found.algorithm.is_some_and(|first| !first.can_wait()) {
            return Err(CheckError::CannotWait {
                name: policy.to_owned(),
            });
        }
        Ok(Waitable(found))
    }

    /// Takes one request's permits (the policy's cost by default) and waits for them. The limit
    /// holds at every instant, except for a cost above its capacity: that is taken as
    /// [`acquire`](Self::acquire) takes it. If the permits would be there only after `longest`, the
    /// request is denied without taking anything, and no penalty counts that: it is asked for
    /// again.
    ///
    /// If nobody can wait for the permits of the [policy in force](Self::in_force) any more, it
    /// denies what does not fit, and bans nobody for it.
    pub(crate) async fn reserve(
        &self,
        policy: &Waitable,
        key: &Key,
        cost: Option<u32>,
        longest: Duration,
    ) -> Held {
        let ask = |of| self.ask_for(policy, key.clone(), cost, longest.into(), of);
        let held = ask(Source::Any).await;
        held.once_there(|| ask(Source::Store)).await
    }

    fn ask_for(
        &self,
        policy: &Waitable,
        key: Key,
        cost: Option<u32>,
        longest: Micros,
        of: Source,
    ) -> Reserving {
        let policy = self.in_force(policy);
        let cost = cost.unwrap_or_else(|| policy.default_cost());
        // A queue lets one out at a time however they wait, and would deny those that find it full.
        let queues = policy.algorithm.is_some_and(|first| first.queues());
        let patience = if queues || cost > policy.capacity() {
            Patience::UntilPaid(longest)
        } else {
            Patience::UntilItFits(longest)
        };
        let wanted = Wanted {
            cost,
            patience,
            until_there: true,
            of,
        };
        self.reserve_with(policy, key, wanted)
    }

    /// The policy that now has this name, or the one found before if none has it now.
    fn in_force(&self, policy: &Waitable) -> Arc<ReadyPolicy> {
        let now = self.named(policy.0.id.name());
        now.unwrap_or_else(|_| Arc::clone(&policy.0))
    }

    fn reserve_with(&self, policy: Arc<ReadyPolicy>, key: Key, wanted: Wanted) -> Reserving {
        let limiter = self.clone();
        let asking = async move { limiter.hold_of(policy, &key, wanted).await };
        Reserving::new(self.clone(), asking)
    }

    /// Asks for the permits of one request like [`check`](Self::check), and holds them: under a
    /// [concurrency](crate::Limit::concurrency) limit until the guard is dropped. Until then the
    /// lease is renewed on the tokio runtime of this call, which needs time enabled and has to be
    /// driven.
    ///
    /// Keep the guard in a variable. In `if limiter.hold("exports", "alice").await?.is_allowed() {`
    /// it is dropped before the block begins, and the compiler does not warn.
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
        let policy = self.named(policy)?;
        let wanted = Wanted {
            cost: policy.default_cost(),
            patience: Patience::None,
            until_there: false,
            of: Source::Any,
        };
        let mut held = self.reserve_with(policy, key, wanted).await;
        held.go_on();
        Ok(held)
    }

    async fn hold_of(&self, policy: Arc<ReadyPolicy>, key: &Key, wanted: Wanted) -> Held {
        let mode = policy.mode();
        let Wanted { cost, patience, .. } = wanted;
        let mut taken = Taken::asking(self.clone());
        let unasked = self.taken_unasked(&self.0.rules.load(), &policy, key, mode);
        if let Some(decision) = unasked {
            return Held::new(decision, taken);
        }
        let subject = self.subject(key);
        let terms = Terms {
            subject,
            cost,
            mode,
        };
        let Some(algorithm) = &policy.algorithm else {
            let shown = policy.shown(key);
            let denied = self.decided_by_nothing(&policy, terms, shown.as_deref());
            return Held::new(denied, taken);
        };
        let action = Action::Take(Take {
            cost,
            patience,
            lease: lease_for(algorithm, cost),
            is_final: false,
        });
        let rates = policy.count_rates();
        // In front of the limit, a penalty denies while it bans but counts no denial.
        let ahead = match wanted.until_there && mode != Mode::Shadow {
            true => policy.count_checks() - rates,
            false => 0,
        };
        let answer = {
            let mut checks = policy.own_checks(subject, action, mode);
            checks.rotate_right(ahead);
            if wanted.of == Source::Store {
                for check in &mut checks {
                    check.on_store_failure = FailureMode::Deny;
                }
            }
            taken.add(&policy, checks.iter().skip(ahead).take(rates));
            self.0.store.ask(&checks)
        };
        let mut answers = decisions(answer).await;
        if ahead > 0 {
            let (penalty, rates) = answers.split_at(ahead);
            answers = rates.iter().chain(penalty).copied().collect();
        }
        let decision = by_mode(&policy, terms, &answers);
        let rates = answers.iter().take(rates);
        taken.answered(rates.map(|rate| (&decision, rate)));
        // A store that still gives none has decided nothing.
        if wanted.of == Source::Any || decision.store_failure().is_none() {
            self.report_if_taken(&policy, terms, policy.shown(key).as_deref(), &decision);
        }
        Held::new(decision, taken)
    }
}

impl fmt::Debug for Waitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waitable").field(&self.0.id).finish()
    }
}
