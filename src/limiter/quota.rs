//! `Quota`: the permits of one subject under one policy, as a request was judged.

use std::sync::Arc;

use super::rules::ReadyRules;
use crate::algorithm::{Action, Algorithm};
use crate::key::Subject;
use crate::policy::ReadyPolicy;
use crate::store::Check;

/// Whose permits were asked for, and how. What is done with them later is done in the same mode: a
/// value that is not ours under the key of a policy in shadow must not keep others from being given
/// back.
#[derive(Clone)]
pub(super) struct Quota {
    pub(super) policy: Arc<ReadyPolicy>,
    /// Of which of its rates, counted from 0.
    pub(super) rate: usize,
    pub(super) algorithm: Algorithm,
    subject: Subject,
    is_shadow: bool,
}

impl Quota {
    pub(super) fn of(policy: &Arc<ReadyPolicy>, rate: usize, check: &Check<'_>) -> Self {
        Self {
            policy: Arc::clone(policy),
            rate,
            algorithm: check.algorithm,
            subject: check.subject,
            is_shadow: check.is_shadow,
        }
    }

    /// The check that does something with them.
    pub(super) fn check(&self, action: Action) -> Check<'_> {
        let (policy, subject) = (&self.policy, self.subject);
        policy.check(self.rate, subject, self.algorithm, action, self.is_shadow)
    }

    /// The check that takes more of them by the rules in force, for a request that has taken too few. Under
    /// a longer window than the one that it was judged by, its own would forget what others have used.
    pub(super) fn charge<'a>(&'a self, permits: u32, rules: &'a ReadyRules) -> Check<'a> {
        let (policy, algorithm) = match rules.named(self.policy.id.name()) {
            Ok(policy) if self.is_succeeded_by(policy) => (policy, policy.algorithm),
            _ => (&self.policy, self.algorithm),
        };
        let action = Action::Charge(permits);
        policy.check(self.rate, self.subject, algorithm, action, self.is_shadow)
    }

    /// Whether others are judged by this policy's own limit where these were counted by its predecessor's.
    /// A further rate is stored by its period, so that there is never another window where it was; and
    /// what was chosen for the request has none that would follow it.
    fn is_succeeded_by(&self, policy: &ReadyPolicy) -> bool {
        self.rate == 0
            && self.algorithm == self.policy.algorithm
            && self.algorithm.name() == policy.algorithm.name()
            && self.policy.id.group() == policy.id.group()
    }
}
