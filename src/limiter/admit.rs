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
        self.admit_keys(&asked).await
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
        self.admit_keys(&asked).await
    }

    async fn admit_keys(&self, asked: &[KeyedCost<'_>]) -> Result<Permit, Denied> {
        let evaluation = self.evaluation();
        let mut permit = self
            .ask_for_permit(evaluation, asked, AskedAs::PERMIT)
            .await?;
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
