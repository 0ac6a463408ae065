//! Permits that a caller holds while something runs.

use super::Limiter;
use super::evaluate::{AskedAs, Evaluation, KeyedCost};
use super::permit::{Denied, Permit};
use crate::key::Key;

impl Limiter {
    /// Asks for the permits of one request (the policy's cost) for this key, as a
    /// [layer](crate::RateLimitLayer) does: a caller is held up for as long as a
    /// [queue](crate::Limit::leaky_bucket) or [`Policy::max_wait`](crate::Policy::max_wait) says.
    /// Dropping the future meanwhile gives everything back.
    ///
    /// For handlers whose key is in the body of the request, which the layer does not read, and for
    /// work without a request. The policy should apply to [no request](crate::NoRequest), so that a
    /// layer of this limiter does not apply it, too.
    ///
    /// Under a [concurrency](crate::Limit::concurrency) limit the permit holds a place until it is
    /// dropped. Until then its lease is renewed on the tokio runtime of this call, which needs time
    /// enabled and has to be driven. Keep the permit in a variable:
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
    /// A WebSocket is admitted before the upgrade, and its permit is kept to its end: see
    /// [`Limit::concurrency`](crate::Limit::concurrency).
    ///
    /// # Errors
    ///
    /// [`Denied`], if it is denied, or there is no policy of this name.
    pub async fn admit(&self, policy: &str, key: impl Into<Key>) -> Result<Permit, Denied> {
        let key = key.into();
        let asked = [KeyedCost {
            policy,
            key: &key,
            cost: None,
        }];
        self.admit_keys(&asked).await
    }

    /// Asks several policies at once, each for a key and a cost of its own: all of them admit, or
    /// nothing is taken of any.
    ///
    /// It is one atomic decision, except in a Redis Cluster, where the keys of different subjects are
    /// on different servers: there what was taken is given back when another one denies.
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
    /// [`Denied`], if any of them denies, there is no policy of a name, or a policy is asked twice
    /// about the same key.
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
