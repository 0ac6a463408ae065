//! `Limiter`: policies over a store, usable with no HTTP at all.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::error::{CheckError, ConfigError, StoreError};
use crate::key::{Key, Secret, Subject};
use crate::policy::{Policy, ReadyPolicy, Unreadable};
use crate::request::RequestHead;
use crate::store::{Answer, Check, Failover, FailureMode, PendingAnswer, Store};

/// The time that a decision may take unless said otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

/// Policies over a store. Clones share everything.
///
/// ```
/// use tower_throttle::{Limit, Limiter, MemoryStore, MINUTE, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new(), [Policy::new("sms", Limit::sliding_log(3, MINUTE))])?;
/// let phone = "+49 30 1234567";
/// for _ in 0..3 {
///     assert!(limiter.check("sms", phone).await?.is_allowed());
/// }
/// let denied = limiter.check("sms", phone).await?;
/// assert!(!denied.is_allowed());
/// assert!(denied.retry_after().unwrap() <= MINUTE);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter(Arc<Shared>);

struct Shared {
    store: Box<dyn Store>,
    policies: Vec<ReadyPolicy>,
    secret: Option<Secret>,
}

impl Limiter {
    /// Policies over a store, with the defaults of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// Names the policy and the field that make no sense, and what would be right.
    pub fn new(
        store: impl Store,
        policies: impl IntoIterator<Item = Policy>,
    ) -> Result<Self, ConfigError> {
        Self::builder(store).policies(policies).build()
    }

    /// For all that [`new`](Self::new) leaves at its default.
    pub fn builder<S: Store>(store: S) -> LimiterBuilder<S> {
        LimiterBuilder {
            store,
            policies: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            on_store_failure: FailureMode::default(),
            secret: None,
        }
    }

    /// Asks for one request's permits (the policy's cost) of this key.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name. A store that gives no answer is no error: the
    /// policy's [`FailureMode`] decides, and [`Decision::store_failure`] tells.
    pub async fn check(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        let key = key.into();
        let policy = self.named(policy)?;
        self.ask_one(policy, &key, policy.default_cost()).await
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
        let key = key.into();
        let policy = self.named(policy)?;
        self.ask_one(policy, &key, cost).await
    }

    /// Looks at what is left without taking anything; always allowed.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub async fn peek(&self, policy: &str, key: impl Into<Key>) -> Result<Decision, CheckError> {
        self.check_cost(policy, key, 0).await
    }

    fn named(&self, name: &str) -> Result<&ReadyPolicy, CheckError> {
        self.0
            .policies
            .iter()
            .find(|policy| policy.id.name() == name)
            .ok_or_else(|| CheckError::UnknownPolicy {
                name: name.to_owned(),
            })
    }

    async fn ask_one(
        &self,
        policy: &ReadyPolicy,
        key: &Key,
        cost: u32,
    ) -> Result<Decision, CheckError> {
        let answer = self.0.store.ask(&[self.question(policy, key, cost)]);
        let decisions = match answer {
            Answer::Ready(answer) => answered(answer),
            Answer::Pending(answer) => answered(answer.await),
        };
        Ok(decisions[0])
    }

    fn question<'a>(&self, policy: &'a ReadyPolicy, key: &Key, cost: u32) -> Check<'a> {
        Check {
            policy: &policy.id,
            subject: self.subject(key),
            algorithm: policy.algorithm,
            action: Action::take(cost),
            on_store_failure: policy.on_store_failure,
        }
    }

    fn subject(&self, key: &Key) -> Subject {
        key.subject(self.0.secret.as_ref())
    }

    /// Asks all policies that are about this request, at once.
    pub(crate) fn judge(&self, request: &RequestHead<'_>) -> Result<Judging, Refusal> {
        let mut asked = Asked::new();
        let mut checks: SmallVec<[Check<'_>; 4]> = SmallVec::new();
        for (position, policy) in self.0.policies.iter().enumerate() {
            if !policy.applies(request) {
                continue;
            }
            let read = policy.read(request).map_err(|reason| Refusal {
                policy: policy.id.name().to_owned(),
                reason,
            })?;
            if let Some(read) = read {
                checks.push(self.question(policy, &read.key, read.cost));
                asked.push(position);
            }
        }
        if checks.is_empty() {
            return Ok(Judging::Done(Verdict::of_nobody(self.clone())));
        }
        Ok(match self.0.store.ask(&checks) {
            Answer::Ready(answer) => Judging::Done(self.verdict(asked, answer)),
            Answer::Pending(answer) => Judging::Asked(PendingVerdict {
                limiter: self.clone(),
                asked,
                answer,
            }),
        })
    }

    fn verdict(&self, asked: Asked, answer: Result<Decisions, StoreError>) -> Verdict {
        Verdict {
            limiter: self.clone(),
            asked,
            decisions: answered(answer),
        }
    }
}

/// `Failover` stands outermost and turns every error into a decision.
fn answered(answer: Result<Decisions, StoreError>) -> Decisions {
    answer.expect("the failure modes answer when the store does not")
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.policies.iter().map(|policy| policy.id.name());
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}

/// The positions of the policies that were asked, in the order of the decisions.
type Asked = SmallVec<[usize; 4]>;

/// A request that is being judged.
pub(crate) enum Judging {
    Done(Verdict),
    Asked(PendingVerdict),
}

/// A verdict that takes a trip to the store.
pub(crate) struct PendingVerdict {
    limiter: Limiter,
    asked: Asked,
    pub(crate) answer: PendingAnswer,
}

impl PendingVerdict {
    /// The verdict, once the answer is there.
    pub(crate) fn verdict(&mut self, answer: Result<Decisions, StoreError>) -> Verdict {
        self.limiter
            .verdict(std::mem::take(&mut self.asked), answer)
    }
}

/// All decisions about one request, and who took them.
pub(crate) struct Verdict {
    limiter: Limiter,
    asked: Asked,
    decisions: Decisions,
}

impl Verdict {
    fn of_nobody(limiter: Limiter) -> Self {
        Self {
            limiter,
            asked: Asked::new(),
            decisions: Decisions::default(),
        }
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.decisions.all_allow()
    }

    /// Each policy's name and decision.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let names = self
            .asked
            .iter()
            .map(|&position| self.limiter.0.policies[position].id.name());
        names.zip(self.decisions.iter())
    }

    /// The decision that a rejection is about.
    pub(crate) fn denied_by(&self) -> Option<(&str, &Decision)> {
        self.each().nth(self.decisions.denied_by()?)
    }
}

/// A request that cannot be judged: which policy could not read it, and why.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) policy: String,
    pub(crate) reason: Unreadable,
}

/// Builds a [`Limiter`] with more than the defaults.
#[must_use]
pub struct LimiterBuilder<S> {
    store: S,
    policies: Vec<Policy>,
    timeout: Duration,
    on_store_failure: FailureMode,
    secret: Option<Vec<u8>>,
}

impl<S: Store> LimiterBuilder<S> {
    /// Adds one policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Adds policies. All that apply to a request are decided together, all or nothing.
    pub fn policies(mut self, policies: impl IntoIterator<Item = Policy>) -> Self {
        self.policies.extend(policies);
        self
    }

    /// The time that a decision may take before the failure modes decide; 50 ms unless said, 1 ms
    /// to 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What policies that do not say it themselves decide when the store gives no answer;
    /// [`FailureMode::Allow`] unless said.
    pub fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = mode;
        self
    }

    /// Hashes subjects with a secret, so that who reads the store cannot find out by trying
    /// whether, say, a certain address is in it. At least 1 byte. The whole fleet needs the same
    /// secret; another one starts all counts anew.
    pub fn key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.secret = Some(secret.as_ref().to_vec());
        self
    }

    /// Checks everything and builds the limiter.
    ///
    /// # Errors
    ///
    /// Names the policy and the field that make no sense, and what would be right.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        if self.timeout < Duration::from_millis(1) || self.timeout > Duration::from_secs(60) {
            return Err(ConfigError::out_of_range(
                "timeout",
                format_args!("{:?}", self.timeout),
                "1 ms to 60 s",
            ));
        }
        if self.secret.as_ref().is_some_and(Vec::is_empty) {
            // Most likely a variable of the environment that is not set.
            return Err(ConfigError::out_of_range(
                "key_secret",
                "none",
                "a secret of at least 1 byte",
            ));
        }
        let mut names = HashSet::new();
        let mut policies = Vec::with_capacity(self.policies.len());
        for policy in self.policies {
            let policy = policy.ready(self.on_store_failure)?;
            if !names.insert(policy.id.name().to_owned()) {
                return Err(ConfigError::DuplicatePolicy {
                    name: policy.id.name().to_owned(),
                });
            }
            policies.push(policy);
        }
        Ok(Limiter(Arc::new(Shared {
            store: Box::new(Failover::new(self.store, self.timeout)),
            policies,
            secret: self.secret.as_deref().map(Secret::new),
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::time::{MINUTE, SECOND};

    struct Silent;

    impl Store for Silent {
        fn ask(&self, _: &[Check<'_>]) -> Answer {
            Answer::Ready(Ok(Decisions::default()))
        }
    }

    fn refusal(policies: impl IntoIterator<Item = Policy>) -> String {
        Limiter::new(Silent, policies).unwrap_err().to_string()
    }

    fn named(name: &str) -> Policy {
        Policy::new(name, Limit::gcra(100, MINUTE).burst(20))
    }

    #[test]
    fn a_cost_that_is_nothing_or_never_fits_is_refused() {
        assert_eq!(
            refusal([named("api").cost(0)]),
            "policy \"api\": cost: got 0, expected 1 to 4294967295"
        );
        assert_eq!(
            refusal([named("api").cost(21)]),
            "policy \"api\": cost: got 21, expected no more than the limit, or its burst, ever holds"
        );
        assert!(Limiter::new(Silent, [named("api").cost(20)]).is_ok());
    }

    #[test]
    fn names_that_are_used_twice_or_cannot_stand_in_a_header_are_refused() {
        assert!(
            refusal([named("a"), named("b"), named("a")]).contains("\"a\": the name is used twice")
        );
        for name in ["", "a\nb", "ä", &"x".repeat(65)] {
            assert!(refusal([named(name)]).contains("name: got"), "{name:?}");
        }
    }

    #[test]
    fn a_timeout_outside_the_range_is_refused() {
        for (timeout, fine) in [
            (Duration::ZERO, false),
            (Duration::from_micros(999), false),
            (Duration::from_millis(1), true),
            (MINUTE, true),
            (MINUTE + SECOND, false),
        ] {
            let built = Limiter::builder(Silent).timeout(timeout).build();
            assert_eq!(built.is_ok(), fine, "{timeout:?}");
        }
    }

    #[test]
    fn a_secret_that_is_none_is_refused() {
        let built = |secret: &str| Limiter::builder(Silent).key_secret(secret).build();
        assert_eq!(
            built("").unwrap_err().to_string(),
            "key_secret: got none, expected a secret of at least 1 byte"
        );
        assert!(built("s").is_ok());
    }
}
