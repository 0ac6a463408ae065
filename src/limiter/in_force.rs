//! `RulesInForce`: the rules in force. Separate from the limiter, so that what replaces rules, such
//! as the thread that watches a file, keeps neither the limiter nor its store alive.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use super::access_list::AccessList;
use super::changes::{Changes, mode_change, share_change};
use super::deny_list::DenyList;
use super::rules::{CompiledRules, Rules};
use crate::error::{CheckError, ConfigError};
use crate::mode::{Mode, Percent};
use crate::observer::{ChangeEvent, Observers};
use crate::policy::CompiledPolicy;
use crate::store::{Enforced, FailureMode};

/// The rules in force. A request is decided entirely by the rules that it finds at its start.
pub(crate) struct RulesInForce {
    rules: ArcSwap<CompiledRules>,
    /// The time that a decision may take. The validation of policies depends on it.
    timeout: Duration,
    changing: Mutex<()>,
    changes: Changes,
}

impl RulesInForce {
    pub(super) fn new(
        rules: Rules,
        timeout: Duration,
        observers: Observers,
    ) -> Result<Self, ConfigError> {
        let rules = rules.ready(timeout)?;
        let changes = Changes::new(observers);
        rules.changes_since(None, &changes);
        changes.deliver();
        Ok(Self {
            rules: ArcSwap::from_pointee(rules),
            timeout,
            changing: Mutex::new(()),
            changes,
        })
    }

    /// The rules in force now. Not for a change, which would wait for itself.
    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<CompiledRules>> {
        let rules = self.rules.load();
        if !rules.denied.is_outdated() {
            return rules;
        }
        drop(rules);
        self.change_denied(DenyList::update);
        self.rules.load()
    }

    /// See [`Limiter::replace`](super::Limiter::replace).
    pub(crate) fn replace(&self, rules: Rules) -> Result<(), ConfigError> {
        let mut rules = rules.ready(self.timeout)?;
        self.change(|changes| {
            let before = self.rules.load();
            rules.succeed(&before);
            rules.changes_since(Some(&before), changes);
            self.rules.store(Arc::new(rules));
        });
        Ok(())
    }

    pub(super) fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), CheckError> {
        self.change_policy(policy, |ready, changes| {
            let before = ready.mode();
            if before != mode {
                ready.set_mode(mode);
                changes.push(mode_change(policy, Some(before), Some(mode)));
            }
        })
    }

    pub(super) fn set_enforced_for(&self, policy: &str, share: Percent) -> Result<(), CheckError> {
        self.change_policy(policy, |ready, changes| {
            let before = ready.enforced_for();
            if before != share {
                ready.enforce_for(share);
                changes.push(share_change(policy, before, share));
            }
        })
    }

    fn change_policy(
        &self,
        policy: &str,
        change: impl FnOnce(&CompiledPolicy, &Changes),
    ) -> Result<(), CheckError> {
        self.change(|changes| {
            change(self.rules.load().named(policy)?, changes);
            Ok(())
        })
    }

    pub(super) fn set_denied(&self, clients: AccessList) {
        self.change_denied(|denied| denied.set_listed(clients));
    }

    pub(super) fn set_allowed(&self, clients: AccessList) {
        self.change(|changes| {
            let mut rules = CompiledRules::clone(&self.rules.load());
            let to = clients.len();
            let from = std::mem::replace(&mut rules.allowed, Arc::new(clients)).len();
            self.rules.store(Arc::new(rules));
            changes.push(ChangeEvent::AccessList {
                list: "allowed",
                from,
                to,
            });
        });
    }

    /// Changes the deny list, and reports it if it is another list after that.
    pub(super) fn change_denied<T>(&self, change: impl FnOnce(&mut DenyList) -> T) -> T {
        self.change(|changes| {
            let mut rules = CompiledRules::clone(&self.rules.load());
            let before = Arc::clone(rules.denied.all());
            let changed = change(&mut rules.denied);
            if !Arc::ptr_eq(&before, rules.denied.all()) {
                let (from, to) = (before.len(), rules.denied.all().len());
                self.rules.store(Arc::new(rules));
                changes.push(ChangeEvent::AccessList {
                    list: "denied",
                    from,
                    to,
                });
            }
            changed
        })
    }

    /// Reports that the configuration was read, and the error that rejected it.
    #[cfg(feature = "config")]
    pub(crate) fn tell_config_read(&self, error: Option<String>) {
        self.change(|changes| changes.push(ChangeEvent::ConfigRead { error }));
    }

    /// Makes one change at a time, so that concurrent changes do not overwrite each other. Then
    /// reports it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&Changes) -> T) -> T {
        // A panic under the lock cannot leave inconsistent data.
        let lock = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&self.changes);
        drop(lock);
        self.changes.deliver();
        changed
    }
}

impl Enforced for RulesInForce {
    fn failure_modes(&self) -> Vec<(String, FailureMode)> {
        let rules = self.rules.load();
        let policies = rules.policies.iter();
        let enforced = policies.filter(|policy| policy.mode() == Mode::Enforce);
        enforced
            .map(|policy| (policy.id.name().to_owned(), policy.on_store_failure))
            .collect()
    }
}
