//! What can change while a limiter is in use: its rules, the modes of its policies, its lists, and
//! whether it limits at all. Also the state of its store.

use std::sync::atomic::Ordering;

use super::Limiter;
use super::rules::Rules;
use crate::access::AccessList;
use crate::error::{CheckError, ConfigError};
use crate::mode::Mode;
use crate::observer::{BreakerState, ChangeEvent};
use crate::store::Outage;

impl Limiter {
    /// Replaces all rules in one step: a request is decided by the old rules or by the new ones, and
    /// there is no moment without limits.
    ///
    /// What was used stays used: it is stored by the policy's name and the limit's algorithm.
    /// [`gcra`](crate::Limit::gcra), [`token_bucket`](crate::Limit::token_bucket) and
    /// [`leaky_bucket`](crate::Limit::leaky_bucket) store it as the time until all of it is back.
    /// So when the rate is raised and the burst or capacity is not, a key that has used everything
    /// waits longer, by about capacity × (1/old rate − 1/new rate). Raise both by the same factor,
    /// or [`reset`](Self::reset) the keys that should go on at once.
    ///
    /// A mode that was set by [`set_mode`](Self::set_mode) stays, unless the policy's own mode
    /// differs from what it was before. Lists do not stay: those of the new rules replace what
    /// [`set_denied`](Self::set_denied) and [`set_allowed`](Self::set_allowed) have set.
    ///
    /// # Errors
    ///
    /// Names the policy and the field that make no sense; the old rules then stay in force.
    pub fn replace(&self, rules: impl Into<Rules>) -> Result<(), ConfigError> {
        self.0.rules.replace(rules.into())
    }

    /// The names of the policies in force, in their order.
    pub fn policy_names(&self) -> Vec<String> {
        let rules = self.0.rules.load();
        let policies = rules.policies.iter();
        policies.map(|policy| policy.id.name().to_owned()).collect()
    }

    /// The mode that a policy is in.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub fn mode(&self, policy: &str) -> Result<Mode, CheckError> {
        Ok(self.0.rules.load().named(policy)?.mode())
    }

    /// Changes the mode of a policy, from the next request on.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), CheckError> {
        self.0.rules.set_mode(policy, mode)
    }

    /// Replaces the clients that are refused; see [`Rules::deny`].
    pub fn set_denied(&self, clients: AccessList) {
        self.0
            .rules
            .set_list("denied", clients, |rules| &mut rules.denied);
    }

    /// Replaces the clients that are let through uncounted; see [`Rules::allow`].
    pub fn set_allowed(&self, clients: AccessList) {
        self.0
            .rules
            .set_list("allowed", clients, |rules| &mut rules.allowed);
    }

    /// The kill switch: every request passes uncounted, and the store is not asked, until limiting
    /// is [turned on](Self::turn_on) again. It applies to this process; what was used stays used.
    ///
    /// Delayed callers go on at once: requests, callers who [acquire](Self::acquire) permits, and
    /// services behind a [`ThrottleLayer`](crate::ThrottleLayer).
    pub fn turn_off(&self) {
        self.switch(false);
        self.0.turned_off.notify_waiters();
    }

    /// Turns limiting on again.
    pub fn turn_on(&self) {
        self.switch(true);
    }

    /// The state of the circuit breaker in front of the store. Always
    /// [closed](BreakerState::Closed) over a store that answers from memory.
    pub fn breaker_state(&self) -> BreakerState {
        self.0.store.breaker().state()
    }

    fn switch(&self, is_on: bool) {
        self.0.rules.change(|changes| {
            let was_on = !self.0.is_off.swap(!is_on, Ordering::Relaxed);
            if was_on != is_on {
                changes.push(ChangeEvent::Switched { is_on });
            }
        });
    }

    /// What operators call the store, without credentials, such as `Redis at 127.0.0.1:6379`.
    pub fn store_name(&self) -> &str {
        self.0.store.breaker().store()
    }

    /// How long the store has been left alone, and what has passed uncounted meanwhile; `None` while
    /// the circuit breaker is closed.
    pub fn outage(&self) -> Option<Outage> {
        self.0.store.breaker().outage()
    }

    /// Whether requests are limited, that is, not [turned off](Self::turn_off).
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.0.is_off.load(Ordering::Relaxed)
    }
}
