//! `Quota`: the permits of one subject under one policy, as a request was judged.

use std::sync::Arc;

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
}
