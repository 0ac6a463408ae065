//! `InCode`: what a service adds in code to its file, each time that this is read.

use std::sync::Arc;

use crate::error::ConfigError;
use crate::limiter::Rules;
use crate::observer::Observer;
use crate::policy::Policy;
use crate::store::DEFAULT_TIMEOUT;

#[derive(Clone, Default)]
pub(super) struct InCode {
    pub(super) policies: Vec<Policy>,
    pub(super) observers: Vec<Arc<dyn Observer>>,
}

impl InCode {
    /// Adds a policy, which has to make sense together with these rules: it is refused here, and not
    /// with some reload.
    ///
    /// # Errors
    ///
    /// Names what is wrong with the policy, or that another one has its name.
    pub(super) fn add(&mut self, policy: Policy, rules: Rules) -> Result<(), ConfigError> {
        let rules = rules.with_policy(policy.clone());
        rules.validate(DEFAULT_TIMEOUT)?;
        self.policies.push(policy);
        Ok(())
    }

    pub(super) fn has_policy(&self, name: &str) -> bool {
        self.policies.iter().any(|policy| policy.name() == name)
    }
}
