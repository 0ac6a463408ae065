//! What a limiter is asked outside of HTTP: `check` and its siblings, none of which waits.

use super::Limiter;
use super::reply::{Reply, Terms};
use crate::algorithm::Action;
use crate::decision::Decision;
use crate::error::CheckError;
use crate::key::Key;

impl Limiter {
    /// Asks for one request's permits (the policy's cost) of this key.
    ///
    /// A [layer](crate::RateLimitLayer) of this limiter judges all requests by the same policy, unless it is about
    /// [none](crate::NoRequest). [`Rejection::by`](crate::Rejection::by) makes a response of a denial.
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
        let reply = self.take(policy, &key.into(), None);
        match reply {
            Reply::Decided(decision) => Ok(decision),
            Reply::Asked(trip) => Ok(trip.await),
            Reply::Failed(error) => Err(error),
        }
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
        let reply = self.take(policy, &key.into(), Some(cost));
        match reply {
            Reply::Decided(decision) => Ok(decision),
            Reply::Asked(trip) => Ok(trip.await),
            Reply::Failed(error) => Err(error),
        }
    }

    /// Looks at what is left without taking anything. Always allowed, also during a ban, of which
    /// [`Decision::banned_for`] tells. What is left is told by the policy's own limit, also where
    /// [`limit_by`](crate::Policy::limit_by) has requests judged by another. The key of a client's address is its
    /// [`canonical_address`](Self::canonical_address).
    ///
    /// The key is the one that the policy's extractor makes of requests, as
    /// [`reset`](Self::reset) says.
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
    /// A limit that counts permits in windows counts no more than 2^32 - 1 of them at a time: what is
    /// charged beyond that, here or by [`settle`](crate::Policy::settle), is not known afterwards, neither
    /// when a part of it lapses nor when it is given back. Where so much may come together, as of bytes, let
    /// a permit stand for more of them.
    ///
    /// Of a key that is not limited (limiting or the policy is off, or it is on the list of those
    /// who are let through) nothing is counted: [`Outcome::Unlimited`](crate::Outcome::Unlimited).
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
        let key = key.into();
        let policy = self.named(policy)?;
        let unlimited = self.unasked(&self.0.rules.load(), &policy, &key, policy.mode());
        if let Some(decision) = unlimited.filter(Decision::is_allowed) {
            return Ok(decision);
        }
        let action = Action::Charge(permits);
        Ok(self.carry_out(&policy, self.subject(&key), action).await)
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
        let policy = self.named(policy)?;
        let action = Action::Credit {
            permits,
            taken_at: None,
        };
        let subject = self.subject(&key.into());
        Ok(self.carry_out(&policy, subject, action).await)
    }

    /// Forgets all that is known of a key: what it has used, its denials, its ban. Leases of a
    /// [concurrency](crate::Limit::concurrency) limit are forgotten too, while what they were taken
    /// for runs on. What a request that began before gives back at its end, as where its response says how,
    /// may then be taken off what others have used since. The key of a client's address is its [`canonical_address`](Self::canonical_address).
    ///
    /// The key is the one that the policy's extractor makes of requests: for
    /// [`Extension`](crate::Extension) the value that it reads, for [`Header`](crate::Header)
    /// [`Key::header`], for [`PeerAddr`](crate::PeerAddr) and [`ClientAddr`](crate::ClientAddr)
    /// [`Key::address`]. Another key is another subject, of which there may be nothing to forget,
    /// and that is no error.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn reset(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.reset_subject(policy, self.subject(&key.into())).await
    }

    /// Asks for this cost, the policy's unless said. No async function, so that nothing of it is
    /// kept while a trip is awaited.
    fn take(&self, policy: &str, key: &Key, cost: Option<u32>) -> Reply {
        let rules = self.0.rules.load();
        let policy = match rules.named(policy) {
            Ok(policy) => policy,
            Err(error) => return Reply::Failed(error),
        };
        let cost = cost.unwrap_or_else(|| policy.default_cost());
        // Once: it may be changed at any time.
        let mode = policy.mode();
        // Whoever only looks is shown what is there, whatever the mode.
        if cost > 0
            && let Some(decision) = self.taken_unasked(&rules, policy, key, mode)
        {
            return Reply::Decided(decision);
        }
        let terms = Terms {
            subject: self.subject(key),
            cost,
            mode,
        };
        self.decide(policy, terms)
    }
}
