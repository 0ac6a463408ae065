//! `RulesInForce`: the rules in force. Apart from the limiter, so that what replaces them, such as the
//! thread that watches a file, keeps neither the limiter nor its store alive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::rules::{ReadyRules, Rules};
use crate::error::{CheckError, ConfigError};
use crate::mode::Mode;

/// The rules in force. A request is judged by the rules it finds, to its end.
pub(crate) struct RulesInForce {
    rules: ArcSwap<ReadyRules>,
    changing: Mutex<()>,
}

impl RulesInForce {
    pub(super) fn new(rules: Rules) -> Result<Self, ConfigError> {
        Ok(Self {
            rules: ArcSwap::from_pointee(rules.ready()?),
            changing: Mutex::new(()),
        })
    }

    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<ReadyRules>> {
        self.rules.load()
    }

    /// See [`Limiter::replace`](super::Limiter::replace).
    pub(crate) fn replace(&self, rules: Rules) -> Result<(), ConfigError> {
        let rules = rules.ready()?;
        let _one_at_a_time = self.lock();
        rules.succeed(&self.rules.load());
        self.rules.store(Arc::new(rules));
        Ok(())
    }

    pub(super) fn set_mode(&self, policy: &str, mode: Mode) -> Result<(), CheckError> {
        let _one_at_a_time = self.lock();
        self.rules.load().named(policy)?.set_mode(mode);
        Ok(())
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ReadyRules)) {
        let _one_at_a_time = self.lock();
        let mut rules = ReadyRules::clone(&self.rules.load());
        change(&mut rules);
        self.rules.store(Arc::new(rules));
    }

    /// Held while rules change, so that concurrent changes do not overwrite each other.
    fn lock(&self) -> MutexGuard<'_, ()> {
        // Nothing under the lock can be half done.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
