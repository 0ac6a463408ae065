//! `Quota`: the permits of one key under one policy, as a request was decided.

use std::borrow::Cow;
use std::sync::Arc;

use super::rules::CompiledRules;
use crate::algorithm::{Action, Algorithm};
use crate::key::Subject;
use crate::mode::Mode;
use crate::policy::CompiledPolicy;
use crate::store::Check;

/// The key and the limit of a request's permits. Later actions use the same mode: a corrupt value
/// under the key of a policy in shadow mode must not prevent the refund of other permits.
#[derive(Clone)]
pub(super) struct Quota {
    pub(super) policy: Arc<CompiledPolicy>,
    /// The position of the policy's rate, counted from 0.
    pub(super) rate: usize,
    pub(super) algorithm: Algorithm,
    subject: Subject,
    pub(super) is_shadow: bool,
}

impl Quota {
    pub(super) fn of(policy: &Arc<CompiledPolicy>, rate: usize, check: &Check<'_>) -> Self {
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
        policy.check(self.rate, subject, &self.algorithm, action, self.is_shadow)
    }

    /// The quota to charge for a request that was charged too little. Uses the rules in force: if
    /// the window has become longer since, the old limit would drop what others have used.
    pub(super) fn in_force<'a>(&'a self, rules: &CompiledRules) -> Cow<'a, Self> {
        let now = rules.named(self.policy.id.name()).ok();
        let now = now.filter(|policy| !Arc::ptr_eq(policy, &self.policy));
        match now.and_then(|policy| Some((policy, self.successor(policy)?))) {
            Some((policy, algorithm)) => Cow::Owned(Self {
                policy: Arc::clone(policy),
                algorithm,
                ..self.clone()
            }),
            None => Cow::Borrowed(self),
        }
    }

    /// The quota to take more of while the request runs, in the mode that the policy now has; `None` if
    /// it is off.
    pub(super) fn in_mode_in_force(&self, rules: &CompiledRules) -> Option<Self> {
        let policy = rules.named(self.policy.id.name()).unwrap_or(&self.policy);
        let mode = policy.mode_for(self.subject, policy.mode());
        (mode != Mode::Off).then(|| Self {
            is_shadow: mode == Mode::Shadow,
            ..self.in_force(rules).into_owned()
        })
    }

    /// The algorithm of the policy's own limit, if it replaces the one that counted these permits.
    /// `None` for a further rate, which is stored by its period, and for a limit that was chosen
    /// for the request.
    fn successor(&self, policy: &CompiledPolicy) -> Option<Algorithm> {
        let is_own = self.rate == 0 && self.policy.algorithm() == Some(&self.algorithm);
        let is_same_place = |now: &Algorithm| {
            now.name() == self.algorithm.name() && policy.id.group() == self.policy.id.group()
        };
        let now = policy
            .algorithm()
            .filter(|now| is_own && is_same_place(now));
        now.copied()
    }
}
