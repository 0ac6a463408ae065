//! `RulesInForce`: the rules in force. Apart from the limiter, so that what replaces them, such as
//! the thread that watches a file, keeps neither the limiter nor its store alive.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};

use super::access_list::AccessList;
use super::changes::{Changes, mode_change, share_change};
use super::rules::{CompiledRules, Rules};
use crate::error::{CheckError, ConfigError};
use crate::mode::{Mode, Percent};
use crate::observer::{ChangeEvent, Observers};
use crate::store::{Enforced, FailureMode};

/// The rules in force. A request is decided by the rules it finds, to its end.
pub(crate) struct RulesInForce {
    rules: ArcSwap<CompiledRules>,
    /// How long a decision may take: whether a policy makes sense depends on it.
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
        changes.tell();
        Ok(Self {
            rules: ArcSwap::from_pointee(rules),
            timeout,
            changing: Mutex::new(()),
            changes,
        })
    }

    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<CompiledRules>> {
        self.rules.load()
    }

    /// See [`Limiter::replace`](super::Limiter::replace).
    pub(crate) fn replace(&self, rules: Rules) -> Result<(), ConfigError> {
        let rules = rules.ready(self.timeout)?;
        self.change(|changes| {
            let before = self.load();
            rules.succeed(&before);
            rules.changes_since(Some(&before), changes);
            self.rules.store(Arc::new(rules));
        });
        Ok(())
    }

    pub(super) fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), CheckError> {
        self.change(|changes| {
            let rules = self.load();
            let ready = rules.named(policy)?;
            let before = ready.mode();
            if before != mode {
                ready.set_mode(mode);
                changes.push(mode_change(policy, Some(before), Some(mode)));
            }
            Ok(())
        })
    }

    pub(super) fn set_enforced_for(&self, policy: &str, share: Percent) -> Result<(), CheckError> {
        self.change(|changes| {
            let rules = self.load();
            let ready = rules.named(policy)?;
            let before = ready.enforced_for();
            if before != share {
                ready.enforce_for(share);
                changes.push(share_change(policy, before, share));
            }
            Ok(())
        })
    }

    pub(super) fn set_list(
        &self,
        list: &'static str,
        clients: AccessList,
        place: impl FnOnce(&mut CompiledRules) -> &mut Arc<AccessList>,
    ) {
        self.change(|changes| {
            let mut rules = CompiledRules::clone(&self.load());
            let to = clients.len();
            let from = std::mem::replace(place(&mut rules), Arc::new(clients)).len();
            self.rules.store(Arc::new(rules));
            changes.push(ChangeEvent::AccessList { list, from, to });
        });
    }

    /// Tells that the configuration was read, and why it was refused if it was.
    #[cfg(feature = "config")]
    pub(crate) fn tell_config_read(&self, error: Option<String>) {
        self.change(|changes| changes.push(ChangeEvent::ConfigRead { error }));
    }

    /// Makes a change, one at a time, so that concurrent ones do not overwrite each other; then tells
    /// of it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&Changes) -> T) -> T {
        // Nothing under the lock can be half done.
        let lock = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&self.changes);
        drop(lock);
        self.changes.tell();
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
