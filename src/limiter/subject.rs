//! Looks at and forgets keys without a request. By a key's hash, for an operator who found it in a
//! log, a metric or a stored key; and by a client's address.

use std::net::IpAddr;

use super::Limiter;
use crate::algorithm::Action;
use crate::decision::Decision;
use crate::error::CheckError;
use crate::key::{Key, Subject};

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
