//! The operations of a limiter outside HTTP: `check` and others, none of which waits. By a key; by
//! a key's hash, for an operator who found it in a log, a metric or a stored key; and by a client's
//! address.

use std::net::IpAddr;

use super::Limiter;
use super::evaluate::{AskedAs, DecidedBy, Evaluation, KeyedCost};
use crate::algorithm::Action;
use crate::decision::{Decision, Outcome};
use crate::error::CheckError;
use crate::key::{Key, Subject};

impl Limiter {
    /// Asks for the permits of one request (the policy's cost) for this key.
    ///
    /// A [layer](crate::RateLimitLayer) of this limiter applies the same policy to all requests,
    /// unless the policy applies to [none](crate::NoRequest). To answer a denial, or give anything
    /// back, use [`admit`](Self::admit).
    ///
    /// This does not wait. Under a [leaky bucket](crate::Limit::leaky_bucket) that is a queue, the
    /// caller has to wait for as long as [`Decision::delay`] says. Under a
    /// [concurrency](crate::Limit::concurrency) limit, permits taken here share one lease, which
    /// lapses a whole lease after the last of them was taken: use [`admit`](Self::admit), whose permit
    /// gives its own back.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub async fn check(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        let pending = {
            let mut evaluation = self.evaluation();
            self.evaluate_key(&mut evaluation, policy, &key.into(), None)?;
            if !evaluation.is_in_flight() {
                return Ok(evaluation.conclude(self).decision());
            }
            self.pending(evaluation)
        };
        Ok(pending.decision().await)
    }

    /// Like [`check`](Self::check), for this many permits; 0 only looks.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn check_cost(
        &self,
        policy: &str,
        key: impl Into<Key>,
        cost: u64,
    ) -> Result<Decision, CheckError> {
        let pending = {
            let mut evaluation = self.evaluation();
            self.evaluate_key(&mut evaluation, policy, &key.into(), Some(cost))?;
            if !evaluation.is_in_flight() {
                return Ok(evaluation.conclude(self).decision());
            }
            self.pending(evaluation)
        };
        Ok(pending.decision().await)
    }

    /// Asks about one key, for permits that nobody gives back.
    #[inline(always)]
    fn evaluate_key(
        &self,
        evaluation: &mut Evaluation,
        policy: &str,
        key: &Key,
        cost: Option<u64>,
    ) -> Result<(), CheckError> {
        let asked = [KeyedCost { policy, key, cost }];
        self.evaluate_keys(evaluation, &asked, AskedAs::CHECK)
    }

    /// Looks at what is left without taking anything. The decision is always allowed, even during a
    /// ban, of which [`Decision::banned_for`] tells. What is left is told by the policy's own
    /// limit, even if [`limit_by`](crate::Policy::limit_by) chooses another for requests. The key
    /// of a client's address is its [`canonical_address`](Self::canonical_address).
    ///
    /// The key is the one that the policy's extractor makes of requests: see
    /// [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn peek(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.check_cost(policy, key, 0).await
    }

    /// Takes permits without asking, even beyond the limit; the excess has to come back before
    /// anything is allowed again. The decision tells what is left.
    ///
    /// A limit by windows counts at most 10^15 - 1 permits at a time. What is charged beyond that,
    /// here or by [`settle`](crate::Policy::settle), is lost: it is missing when a part of it
    /// lapses or is given back.
    ///
    /// For a key that is not limited (because limiting or the policy is off, or the key is on the
    /// allow list) nothing is counted: [`Outcome::Unlimited`](crate::Outcome::Unlimited).
    ///
    /// If the store gives no answer, nothing is charged, or it is not known; under
    /// `FailureMode::Local` this process charges its own share, which the store never learns of. Only
    /// [`Decision::store_failure`] tells: the decision is allowed except under
    /// [`FailureMode::Deny`](crate::FailureMode::Deny).
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn charge(
        &self,
        policy: &str,
        key: impl Into<Key>,
        permits: u64,
    ) -> Result<Decision, CheckError> {
        let key = key.into();
        let policy = self.named(policy)?;
        let rules = self.0.rules.load();
        let unasked = self.decided_without_store(&rules, &key, policy.mode());
        drop(rules);
        if unasked == Some(DecidedBy::Nobody) {
            return Ok(Decision::unasked(Outcome::Unlimited, policy.quota()));
        }
        let action = Action::Charge(permits);
        Ok(self.carry_out(&policy, self.subject(&key), action).await)
    }

    /// Gives permits back, at most as many as are taken. The decision tells what is left.
    ///
    /// A window that has ended stays ended, and an open one does not get longer. Under a
    /// [concurrency](crate::Limit::concurrency) limit, only permits without a lease of their own
    /// are given back: those taken by [`charge`](Self::charge) and [`check`](Self::check).
    ///
    /// If the store gives no answer, the same holds as for [`charge`](Self::charge): under
    /// `FailureMode::Local` permits come back to this process's own share, even if the store has taken
    /// them, and later to the store, even if they were taken from the share.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn credit(
        &self,
        policy: &str,
        key: impl Into<Key>,
        permits: u64,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        let action = Action::Credit {
            permits,
            taken_at: None,
        };
        let subject = self.subject(&key.into());
        Ok(self.carry_out(&policy, subject, action).await)
    }

    /// Forgets everything about a key: what it has used, its denials, its ban. Leases of a
    /// [concurrency](crate::Limit::concurrency) limit are forgotten, too, while the requests that
    /// hold them go on. A request that began before may give permits back at its end; they may then
    /// be taken off what others have used since. The key of a client's address is its
    /// [`canonical_address`](Self::canonical_address).
    ///
    /// The key has to be the one that the policy's extractor makes of requests: for
    /// [`Extension`](crate::Extension) [`Key::user`], for [`Header`](crate::Header)
    /// [`Key::header`], for [`PeerAddr`](crate::PeerAddr) and [`ClientAddr`](crate::ClientAddr)
    /// [`Key::address`], for a closure what it returns; for a tuple [`Key::all`] of its parts, and
    /// for a policy without an extractor [`Key::everybody`]. Requests that have no key share
    /// [`Key::missing`].
    ///
    /// **Any other key is another subject**, about which there may be nothing to forget; that is no
    /// error. So `reset("user", 7)` forgets nothing of user 7 under a policy by `Extension`, whose
    /// key is `Key::user(7)`. A text or a number alone is the key of [`Host`](crate::Host), of a
    /// closure that returns it, and of a [`check`](Self::check) with it.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn reset(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.reset_subject(policy, self.subject(&key.into())).await
    }
}

impl Limiter {
    /// What a key is known by in the store, in logs and to observers.
    pub fn subject_of(&self, key: impl Into<Key>) -> Subject {
        self.subject(&key.into())
    }

    /// The address that stands in the keys of a policy for the client that has this one, whichever
    /// of the client's own it is: an IPv6 client has a whole network, how large a one says
    /// [`ClientAddr::ipv6_prefix`](crate::ClientAddr::ipv6_prefix).
    ///
    /// `None` when the policy's keys have no address, or when its [extractor](crate::KeyExtractor)
    /// does not tell, as closures never do.
    ///
    /// ```
    /// use std::net::IpAddr;
    ///
    /// use tower_throttle::{CheckError, Limiter};
    ///
    /// /// Lifts the ban of whoever has this address. Returns whether it was done.
    /// async fn is_forgiven(limiter: &Limiter, client: IpAddr) -> Result<bool, CheckError> {
    ///     let Some(address) = limiter.canonical_address("client", client)? else {
    ///         return Ok(false);
    ///     };
    ///     let reset = limiter.reset("client", address).await?;
    ///     Ok(reset.store_failure().is_none())
    /// }
    /// # use tower_throttle::{Limit, MINUTE, MemoryStore, PeerAddr, Policy};
    /// # let policy = Policy::new("client", Limit::gcra(100, MINUTE)).by(PeerAddr.ipv6_prefix(56));
    /// # let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    /// # let client = "2001:db8:0:7::7".parse().unwrap();
    /// # let network = "2001:db8::".parse().ok();
    /// # assert_eq!(limiter.canonical_address("client", client), Ok(network));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # assert_eq!(runtime.block_on(is_forgiven(&limiter, client)), Ok(true));
    /// ```
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub fn canonical_address(
        &self,
        policy: &str,
        address: IpAddr,
    ) -> Result<Option<IpAddr>, CheckError> {
        let policy = self.named(policy)?;
        Ok(policy.canonical_address(address))
    }

    /// As [`peek`](Self::peek), of a subject.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub async fn peek_subject(
        &self,
        policy: &str,
        subject: Subject,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        Ok(self.carry_out(&policy, subject, Action::look()).await)
    }

    /// As [`reset`](Self::reset), of a subject.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub async fn reset_subject(
        &self,
        policy: &str,
        subject: Subject,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        Ok(self.carry_out(&policy, subject, Action::Reset).await)
    }
}
