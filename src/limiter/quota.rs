//! `Quota`: the permits of one subject under one policy, as a request was judged.

use std::sync::Arc;

use super::rules::ReadyRules;
use crate::algorithm::{Action, Algorithm};
use crate::key::Subject;
use crate::policy::ReadyPolicy;
use crate::store::Check;

/// Whose permits were asked for, and under which limit. Later actions on them use the same mode: a
/// foreign value under the key of a policy in shadow must not keep other permits from being given
/// back.
#[derive(Clone)]
pub(super) struct Quota {
    pub(super) policy: Arc<ReadyPolicy>,
    /// Which of the policy's rates, counted from 0.
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

    /// The check that applies an action to these permits.
    pub(super) fn check(&self, action: Action) -> Check<'_> {
        let (policy, subject) = (&self.policy, self.subject);
        policy.check(self.rate, subject, self.algorithm, action, self.is_shadow)
    }

    /// The check that charges more of them, for a request that has taken too few. It uses the rules
    /// in force: if the window has become longer since, the old limit would forget what others have
    /// used.
    pub(super) fn charge<'a>(&'a self, permits: u32, rules: &'a ReadyRules) -> Check<'a> {
        let (policy, algorithm) = match rules.named(self.policy.id.name()) {
            Ok(policy) if self.is_succeeded_by(policy) => (policy, policy.algorithm),
            _ => (&self.policy, self.algorithm),
        };
        let action = Action::Charge(permits);
        policy.check(self.rate, self.subject, algorithm, action, self.is_shadow)
    }

    /// Whether the policy's own limit now judges others where its predecessor's counted these
    /// permits. Not so for a further rate, which is stored by its period, so no other window takes
    /// its place; nor for a limit chosen for the request, which has no successor.
    fn is_succeeded_by(&self, policy: &ReadyPolicy) -> bool {
        self.rate == 0
            && self.algorithm == self.policy.algorithm
            && self.algorithm.name() == policy.algorithm.name()
            && self.policy.id.group() == policy.id.group()
    }
}
