//! `Check`: one policy's question about one request. `OwnedCheck`: one that outlives its question.
//! `FingerprintMap`: a table by the fingerprints of checks.

use std::collections::HashMap;
#[cfg(feature = "redis")]
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};

use smallvec::SmallVec;

use super::{FailureMode, PolicyId};
use crate::algorithm::{Action, Algorithm, Ask};
use crate::decision::{Decision, Outcome};
use crate::error::StoreErrorKind;
use crate::key::Subject;
use crate::time::{Micros, SECOND};

/// The question that one rate of one policy asks about one request.
///
/// A limit of several rates has a check for each rate, directly one after the other. Limiters make
/// checks. For tests of your own [`Store`](super::Store), use [`new`](Self::new):
///
/// ```
/// use tower_throttle::store::{Action, Algorithm};
/// use tower_throttle::store::{Check, PolicyId};
/// use tower_throttle::{Key, Limit, MINUTE, Subject};
///
/// let policy = PolicyId::new("login");
/// let alice = Subject::from(&Key::from("alice"));
/// let limit = Algorithm::try_from(&Limit::gcra(5, MINUTE))?;
/// let check = Check::new(&policy, alice, limit, Action::acquire(1));
/// let look = check.with_action(Action::look()).in_shadow(true);
/// assert_eq!(look.fingerprint(), check.fingerprint());
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Check<'a> {
    /// The policy. The check of its [`Penalty`](crate::Penalty) has the same one.
    pub policy: &'a PolicyId,
    /// Whose quota it is.
    pub subject: Subject,
    /// The algorithm with the parameters of the limit.
    pub algorithm: Algorithm,
    /// What to do.
    pub action: Action,
    /// Whether the check only counts. A shadow check is carried out if it and all enforced checks
    /// fit, and never denies the request. The rates of one limit are all in shadow, or none is. A
    /// [`Penalty`](crate::Penalty) is in shadow if and only if the check before it is.
    pub is_shadow: bool,
    /// What to decide when the store gives no answer.
    pub on_store_failure: FailureMode,
}

impl<'a> Check<'a> {
    /// An enforced check with the failure mode [`Allow`](FailureMode::Allow).
    pub const fn new(
        policy: &'a PolicyId,
        subject: Subject,
        algorithm: Algorithm,
        action: Action,
    ) -> Self {
        Self {
            policy,
            subject,
            algorithm,
            action,
            is_shadow: false,
            on_store_failure: FailureMode::Allow,
        }
    }

    /// The same for so many permits, if it [takes fewer](crate::store::Acquire::takes_fewer) than it
    /// is for; see [`granted`](crate::store::granted).
    #[must_use]
    pub fn granting(self, permits: u64) -> Self {
        Self {
            action: self.action.granting(permits),
            ..self
        }
    }

    /// The same with another action.
    #[must_use]
    pub const fn with_action(mut self, action: Action) -> Self {
        self.action = action;
        self
    }

    /// The same in shadow, or enforced.
    #[must_use]
    pub const fn in_shadow(mut self, is_shadow: bool) -> Self {
        self.is_shadow = is_shadow;
        self
    }

    /// The same with another failure mode.
    #[must_use]
    pub const fn with_failure_mode(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = mode;
        self
    }
}

impl Check<'_> {
    /// 128 bits that identify the state of this check: the policy, the period of a further rate, the
    /// subject and the algorithm. Groups are not part of it.
    ///
    /// Fingerprints are uniformly distributed, and the same in every process with this version of
    /// the crate.
    pub fn fingerprint(&self) -> u128 {
        self.policy_fingerprint() ^ u128::from(self.algorithm.number())
    }

    /// Identifies its policy's count of its subject in this process, whatever the algorithm.
    pub(crate) fn policy_fingerprint(&self) -> u128 {
        self.subject.to_u128() ^ self.policy.fingerprint()
    }

    /// Identifies the place of that count: a policy that is put into another group starts anew
    /// there.
    pub(crate) fn stored_fingerprint(&self) -> u128 {
        self.policy_fingerprint() ^ self.policy.group_fingerprint().unwrap_or(0)
    }

    /// The decision if nobody has decided it: let through if its failure mode says so, or if it only
    /// counts.
    pub(crate) fn failed(&self, why: StoreErrorKind) -> Decision {
        let outcome = if self.is_shadow || self.on_store_failure == FailureMode::Allow {
            Outcome::FailedOpen(why)
        } else {
            Outcome::FailedClosed(why)
        };
        Decision {
            retry_after: Micros::from(SECOND),
            ..Decision::unasked(outcome, self.algorithm.quota())
        }
    }

    /// The decision if another check of the request is known to deny.
    pub(crate) fn not_asked(&self) -> Decision {
        Decision::unasked(Outcome::NotAsked, self.algorithm.quota())
    }

    /// What it asks of its key.
    pub fn ask(&self) -> Ask<'_> {
        Ask {
            algorithm: &self.algorithm,
            action: &self.action,
            is_shadow: self.is_shadow,
            is_extra_rate: self.policy.extra_rate().is_some(),
        }
    }
}

#[cfg(any(test, fuzzing))]
impl<'a> Check<'a> {
    /// An enforced check that is denied when the store fails.
    pub(crate) fn of(
        policy: &'a PolicyId,
        key: impl Into<crate::key::Key>,
        limit: &crate::limit::Limit,
        action: Action,
    ) -> Self {
        Self {
            policy,
            subject: Subject::from(&key.into()),
            algorithm: Algorithm::try_from(limit).expect("a valid limit"),
            action,
            is_shadow: false,
            on_store_failure: FailureMode::Deny,
        }
    }
}

/// A check that outlives its question.
#[derive(Clone)]
pub(super) struct OwnedCheck {
    policy: PolicyId,
    subject: Subject,
    pub(super) algorithm: Algorithm,
    pub(super) action: Action,
    pub(super) is_shadow: bool,
    on_store_failure: FailureMode,
}

impl OwnedCheck {
    pub(super) fn of(check: &Check<'_>) -> Self {
        Self {
            policy: check.policy.clone(),
            subject: check.subject,
            algorithm: check.algorithm,
            action: check.action,
            is_shadow: check.is_shadow,
            on_store_failure: check.on_store_failure,
        }
    }

    /// The same check with another action.
    pub(super) fn with_action(&self, action: Action) -> Self {
        Self {
            action,
            ..self.clone()
        }
    }

    pub(super) fn check(&self) -> Check<'_> {
        Check {
            policy: &self.policy,
            subject: self.subject,
            algorithm: self.algorithm,
            action: self.action,
            is_shadow: self.is_shadow,
            on_store_failure: self.on_store_failure,
        }
    }

    /// Whether it is of the same policy and algorithm as another one.
    #[cfg(feature = "redis")]
    pub(super) fn is_of_policy(&self, other: &Self) -> bool {
        self.policy.fingerprint() == other.policy.fingerprint()
            && self.algorithm.number() == other.algorithm.number()
    }
}

/// Turns owned checks back into a question.
pub(super) fn question(checks: &[OwnedCheck]) -> SmallVec<[Check<'_>; 1]> {
    checks.iter().map(OwnedCheck::check).collect()
}

/// Maps each check. Most questions have one, and a growing list takes longer.
pub(super) fn of_each<'a, T>(
    checks: &[Check<'a>],
    make: impl Fn(&Check<'a>) -> T,
) -> SmallVec<[T; 1]> {
    match checks {
        [check] => SmallVec::from_buf([make(check)]),
        // With the exact capacity; a growing list would double.
        checks => checks.iter().map(make).collect::<Vec<_>>().into(),
    }
}

/// By fingerprint, which is uniformly distributed and so not hashed again.
pub(super) type FingerprintMap<V> = HashMap<u128, V, ByFingerprint>;
#[cfg(feature = "redis")]
pub(super) type FingerprintSet = HashSet<u128, ByFingerprint>;

/// Uses a fingerprint as its own hash.
#[derive(Clone, Copy, Default)]
pub(super) struct ByFingerprint;

#[derive(Default)]
pub(super) struct Half(u64);

impl BuildHasher for ByFingerprint {
    type Hasher = Half;

    fn build_hasher(&self) -> Half {
        Half::default()
    }
}

impl Hasher for Half {
    fn write_u128(&mut self, fingerprint: u128) {
        self.0 = fingerprint as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
