//! Permits that a caller holds while something runs.

use super::Limiter;
use super::evaluate::{AskedAs, Evaluation, KeyedCost};
use super::permit::{Denied, Permit};
use crate::key::Key;

impl Limiter {
    /// Acquires the policy's cost for this key, like a request in a [layer](crate::RateLimitLayer):
    /// the call is delayed by a [leaky bucket queue](crate::Limit::leaky_bucket) or
    /// [`Policy::max_wait`](crate::Policy::max_wait). Dropping the future during the delay refunds
    /// everything.
    ///
    /// For handlers whose key is in the request's body, which the layer does not read, and for work
    /// without a request. Let the policy apply to [no request](crate::NoRequest), so that a layer
    /// of this limiter does not apply it too.
    ///
    /// Under a [concurrency](crate::Limit::concurrency) limit, the permit is held until it is
    /// dropped. Until then its lease is renewed on the tokio runtime of this call, which needs time
    /// enabled and must be driven. Keep the permit in a variable:
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("exports", Limit::concurrency(1));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
    /// let permit = limiter.admit("exports", "alice").await?;
    /// let denied = limiter.admit("exports", "alice").await.unwrap_err();
    /// assert_eq!(denied.policy(), "exports");
    /// drop(permit);
    /// assert!(limiter.admit("exports", "alice").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// For a WebSocket, acquire the permit before the upgrade and keep it to the end of the
    /// connection: see [`Limit::concurrency`](crate::Limit::concurrency).
    ///
    /// # Errors
    ///
    /// [`Denied`] if the call is denied or there is no policy of this name.
    pub async fn admit(&self, policy: &str, key: impl Into<Key>) -> Result<Permit, Denied> {
        let key = key.into();
        let asked = [KeyedCost {
            policy,
            key: &key,
            cost: None,
        }];
        self.admit_keys(&asked, AskedAs::PERMIT).await
    }

    /// Acquires permits of several policies at once, each with its key and cost. Either all
    /// policies admit, or nothing is taken.
    ///
    /// The decision is atomic, except in a Redis Cluster, where different keys are on different
    /// servers: there, permits are refunded when another policy denies.
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let org = Policy::new("org", Limit::fixed_window(10, MINUTE));
    /// let tokens = Policy::new("tokens", Limit::fixed_window(1_000, MINUTE));
    /// let limiter = Limiter::new(MemoryStore::new(), [org, tokens])?;
    /// let mut permit = limiter.admit_all([("org", "acme", 1), ("tokens", "alice", 600)]).await?;
    /// let denied = limiter.admit_all([("org", "acme", 1), ("tokens", "alice", 600)]).await;
    /// assert_eq!(denied.unwrap_err().policy(), "tokens");
    /// permit.settle("tokens", 420)?;
    /// assert_eq!(limiter.peek("org", "acme").await?.remaining(), 9);
    /// assert_eq!(limiter.peek("tokens", "alice").await?.remaining(), 580);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Denied`] if any policy denies, a policy does not exist, or the same policy and key are
    /// given twice.
    pub async fn admit_all<'p, K: Into<Key>>(
        &self,
        asked: impl IntoIterator<Item = (&'p str, K, u64)>,
    ) -> Result<Permit, Denied> {
        let asked = asked.into_iter();
        let keys: Vec<(&str, Key, u64)> = asked
            .map(|(policy, key, cost)| (policy, key.into(), cost))
            .collect();
        let asked: Vec<_> = keys
            .iter()
            .map(|(policy, key, cost)| KeyedCost {
                policy,
                key,
                cost: Some(*cost),
            })
            .collect();
        self.admit_keys(&asked, AskedAs::PERMIT).await
    }

    /// Asks for part of what is wanted: as many permits as there are for this key, from 1 to `most`.
    /// The permit [says how many](Permit::granted). A `most` of 0 only looks.
    ///
    /// It is one atomic step in the store, so that callers at the same time never get more together
    /// than there is. A limit of several rates grants what the rate with the fewest has left. Nobody
    /// waits: [`Policy::max_wait`](crate::Policy::max_wait) does not count here, and a
    /// [queue](crate::Limit::leaky_bucket) grants what fits into it while nothing is before it in the
    /// queue, and denies otherwise.
    ///
    /// For work that can be done in pieces, such as a batch of messages or the tokens of an answer:
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("tokens", Limit::fixed_window(1_000, MINUTE));
    /// let limiter = Limiter::new(MemoryStore::new(), [policy])?;
    /// let all = limiter.admit_up_to("tokens", "alice", 700).await?;
    /// assert_eq!(all.granted("tokens"), Some(700));
    /// let mut rest = limiter.admit_up_to("tokens", "alice", 700).await?;
    /// assert_eq!(rest.granted("tokens"), Some(300));
    /// assert!(limiter.admit_up_to("tokens", "alice", 700).await.is_err());
    /// // Of these, 250 were really used.
    /// rest.settle("tokens", 250)?;
    /// assert_eq!(limiter.peek("tokens", "alice").await?.remaining(), 50);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # What if nothing is enforced?
    ///
    /// All of `most` is granted where nobody is denied: if limiting or the policy is off, if the key is
    /// on the allow list, if the store gives no answer and the policy's
    /// [failure mode](crate::FailureMode) is `Allow`, and in [shadow](crate::Mode::Shadow). A policy in
    /// shadow counts what it would have granted, and [settling](Permit::settle) makes it what was
    /// really used. A failure mode of `Local` grants what is left of the process's share.
    ///
    /// What processes hold of a policy with [prefetch](crate::Prefetch) is taken already, and not
    /// granted here.
    ///
    /// # Errors
    ///
    /// [`Denied`], if there is not even one permit, whose wait is then the time until there is one; if
    /// there is no policy of this name; and if the policy counts what runs at the same time, under a
    /// [concurrency](crate::Limit::concurrency) limit: its permits are places.
    pub async fn admit_up_to(
        &self,
        policy: &str,
        key: impl Into<Key>,
        most: u64,
    ) -> Result<Permit, Denied> {
        let key = key.into();
        let asked = [KeyedCost {
            policy,
            key: &key,
            cost: Some(most),
        }];
        self.admit_keys(&asked, AskedAs::UP_TO).await
    }

    async fn admit_keys(
        &self,
        asked: &[KeyedCost<'_>],
        asked_as: AskedAs,
    ) -> Result<Permit, Denied> {
        let evaluation = self.evaluation();
        let mut permit = self.ask_for_permit(evaluation, asked, asked_as).await?;
        let delay = permit.delay();
        if !delay.is_zero() {
            self.delay(delay).await;
        }
        permit.begin_use();
        Ok(permit)
    }

    /// Asks for a permit, and does not wait until it may be used.
    pub(super) async fn ask_for_permit(
        &self,
        mut evaluation: Evaluation,
        asked: &[KeyedCost<'_>],
        asked_as: AskedAs,
    ) -> Result<Permit, Denied> {
        self.evaluate_keys(&mut evaluation, asked, asked_as)?;
        if !evaluation.is_in_flight() {
            return evaluation.conclude(self).into_permit();
        }
        let mut pending = self.pending(evaluation);
        pending.answered().await;
        pending.conclude().into_permit()
    }
}
