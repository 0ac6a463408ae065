//! The methods outside HTTP that do not wait: by key; by a key's hash, for operators who found it
//! in a log, a metric or a stored key; and by a client's address.

use std::net::IpAddr;

use super::Limiter;
use super::evaluate::{AskedAs, DecidedBy, Evaluation, KeyedCost};
use crate::algorithm::Action;
use crate::decision::{Decision, Outcome};
use crate::error::CheckError;
use crate::key::{Key, Subject};

impl Limiter {
    /// Acquires the policy's cost for this key, without waiting.
    ///
    /// A [layer](crate::RateLimitLayer) of this limiter also applies the policy to all requests,
    /// unless the policy applies to [none](crate::NoRequest). Use [`admit`](Self::admit) instead to
    /// answer denials, or for permits that you release or refund.
    ///
    /// Under a [leaky bucket](crate::Limit::leaky_bucket) that delays requests, the caller must
    /// wait for [`Decision::delay`]. Under a [concurrency](crate::Limit::concurrency) limit, all
    /// permits acquired here share one lease, which expires a full lease time after the last of
    /// them; [`admit`](Self::admit) returns a permit with its own lease.
    ///
    /// # Errors
    ///
    /// An error if there is no policy of this name.
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

    /// Like [`check`](Self::check), for this many permits; 0 only peeks.
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

    /// Evaluates one key, for permits without a refund.
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

    /// Returns what remains without taking anything. The decision is always allowed, even during a
    /// ban, which [`Decision::banned_for`] shows. It uses the policy's own limit, even if
    /// [`limit_by`](crate::Policy::limit_by) chooses others for requests.
    ///
    /// Pass the key that the policy's extractor makes: see [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn peek(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.check_cost(policy, key, 0).await
    }

    /// Takes permits unconditionally, even beyond the limit. Later requests are limited until the
    /// excess has come back. The decision shows what remains.
    ///
    /// Window limits count at most 10^15 - 1 permits at a time. Anything charged beyond that, here
    /// or by [`settle`](crate::Policy::settle), is lost and also missing when a part of it expires
    /// or is refunded.
    ///
    /// If the key is not limited (limiting or the policy is off, or the key is on the allow list),
    /// nothing is counted: [`Outcome::Unlimited`](crate::Outcome::Unlimited).
    ///
    /// If the store fails, nothing may have been charged. Under `FailureMode::Local`, this process
    /// charges its own share, which never reaches the store. Check [`Decision::store_failure`]: the
    /// decision itself is allowed, except under [`FailureMode::Deny`](crate::FailureMode::Deny).
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

    /// Returns permits, at most as many as are taken. The decision shows what remains.
    ///
    /// A window that has ended is not affected, and the current one does not get longer. Under a
    /// [concurrency](crate::Limit::concurrency) limit, only permits without their own lease are
    /// returned: those of [`charge`](Self::charge) and [`check`](Self::check).
    ///
    /// If the store fails, the same applies as for [`charge`](Self::charge). Under
    /// `FailureMode::Local`, permits come back to this process's share even if the store has
    /// counted them, and later to the store even if the share has counted them.
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

    /// Resets a key: its usage, its denials and its ban. Leases of a
    /// [concurrency](crate::Limit::concurrency) limit are removed too, although their requests go
    /// on. A request that began earlier may refund permits at its end, which then reduce the usage
    /// of others. For a client's address, pass its [`canonical_address`](Self::canonical_address).
    ///
    /// Pass the key that the policy's extractor makes of requests:
    ///
    /// | the policy's extractor | its key |
    /// |---|---|
    /// | [`Extension`](crate::Extension) | [`Key::user`] |
    /// | [`Header`](crate::Header) | [`Key::header`] |
    /// | [`PeerAddr`](crate::PeerAddr), [`ClientAddr`](crate::ClientAddr) | [`Key::address`] |
    /// | [`Host`](crate::Host) | the host as text |
    /// | a closure | what it returns |
    /// | a tuple | [`Key::all`] of its parts |
    /// | none | [`Key::everybody`] |
    ///
    /// Requests without a key share [`Key::missing`].
    ///
    /// **A different key is not an error**, but has nothing to reset. So `reset("user", 7)` does
    /// not reset user 7 of an `Extension`, whose key is `Key::user(7)`.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn reset(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.reset_subject(policy, self.subject(&key.into())).await
    }
}

impl Limiter {
    /// The hash of a key, by which the store, logs and observers know it.
    pub fn subject_of(&self, key: impl Into<Key>) -> Subject {
        self.subject(&key.into())
    }

    /// The address that a policy's keys contain for a client with this address. All addresses of an
    /// IPv6 client's network share one; [`ClientAddr::ipv6_prefix`](crate::ClientAddr::ipv6_prefix)
    /// sets the size of the network.
    ///
    /// `None` if the policy's keys contain no address, or if its [extractor](crate::KeyExtractor)
    /// does not know, such as a closure.
    ///
    /// ```
    /// use std::net::IpAddr;
    ///
    /// use tower_throttle::{CheckError, Limiter};
    ///
    /// /// Lifts the ban of the client with this address. Returns whether it was done.
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
    /// An error if there is no policy of this name.
    pub fn canonical_address(
        &self,
        policy: &str,
        address: IpAddr,
    ) -> Result<Option<IpAddr>, CheckError> {
        let policy = self.named(policy)?;
        Ok(policy.canonical_address(address))
    }

    /// Like [`peek`](Self::peek), by the key's hash.
    ///
    /// # Errors
    ///
    /// An error if there is no policy of this name.
    pub async fn peek_subject(
        &self,
        policy: &str,
        subject: Subject,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        Ok(self.carry_out(&policy, subject, Action::look()).await)
    }

    /// Like [`reset`](Self::reset), by the key's hash.
    ///
    /// # Errors
    ///
    /// An error if there is no policy of this name.
    pub async fn reset_subject(
        &self,
        policy: &str,
        subject: Subject,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        Ok(self.carry_out(&policy, subject, Action::Reset).await)
    }
}
