//! A question on its way to the store, and what its answer changes in memory.

use smallvec::SmallVec;

use super::denials::Denials;
use super::table::Version;
use crate::algorithm::{Action, Algorithm, Known};
use crate::decision::{Decision, Decisions};
use crate::error::StoreError;
use crate::per_thread::{Spread, SpreadRef};
use crate::store::Check;
use crate::store::fingerprints::FingerprintMap;
use crate::store::owned::of_each;
use crate::time::Micros;

pub(in crate::store) struct Noted {
    denials: SpreadRef<Denials>,
    /// When the question was sent, on the clock of the denials. The store decides no earlier.
    sent: Micros,
    checks: SmallVec<[NotedCheck; 1]>,
}

struct NotedCheck {
    key: u128,
    version: Version,
    algorithm: Algorithm,
    action: Action,
    is_shadow: bool,
}

impl Noted {
    /// Forgets the keys that are about to be changed, and notes the versions of all.
    pub(super) fn new(denials: &Spread<Denials>, checks: &[Check<'_>], sent: Micros) -> Self {
        let note = |check: &Check<'_>| {
            let key = check.stored_fingerprint();
            if check.action.changes() {
                denials.table.forget(key);
            }
            NotedCheck {
                key,
                version: denials.table.version(key),
                algorithm: check.algorithm,
                action: check.action,
                is_shadow: check.is_shadow,
            }
        };
        Self {
            checks: of_each(checks, note),
            denials: denials.hold(),
            sent,
        }
    }

    /// Notes that the question is sent only now, so that the store decides after all changes up to
    /// now.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn is_sent_now(&mut self) {
        self.sent = self.denials.now();
        for check in &mut self.checks {
            check.version = self.denials.table.version(check.key);
        }
    }

    /// For a caller that may give back what this question takes, and so change its keys.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn forgetting(&self) -> Forgetting {
        Forgetting(self.denials.clone())
    }

    pub(in crate::store) fn answered(self, answer: &Result<Decisions, StoreError>) {
        if let Ok(decisions) = answer {
            self.decided(decisions, &mut Changes::default());
        }
    }

    /// `changes` are those by questions that were sent with this one and decided before it. Adds
    /// its own.
    pub(in crate::store) fn decided(&self, decisions: &[Decision], changes: &mut Changes) {
        let each = || self.checks.iter().zip(decisions.iter());
        let all_allow = each().all(|(check, decision)| check.is_shadow || decision.is_allowed());
        let table = &self.denials.table;
        for (check, decision) in each() {
            let may_have_taken = all_allow && decision.is_allowed();
            if may_have_taken && check.action.takes() == 0 {
                continue;
            }
            if may_have_taken || (check.algorithm.is_penalty() && decision.is_allowed()) {
                // A subject that is still denied must wait for these permits, too; and a penalty
                // may have counted a denial.
                table.forget(check.key);
                changes.add(check.key);
            } else if let Some(known) = Known::by(&check.algorithm, &check.action, decision) {
                let received = self.denials.now();
                let version = check.version.after(changes.of(check.key));
                table.remember(check.key, version, known, self.sent, received);
            }
        }
    }
}

/// How often the questions of a batch so far have changed each key. Decisions about later ones were
/// made after that, and may be remembered.
#[derive(Default)]
pub(in crate::store) struct Changes(Option<FingerprintMap<u32>>);

impl Changes {
    /// For so many questions; a single one has none before it.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn of_batch(questions: usize) -> Self {
        Self((questions > 1).then(FingerprintMap::default))
    }

    fn add(&mut self, key: u128) {
        if let Some(changes) = &mut self.0 {
            *changes.entry(key).or_default() += 1;
        }
    }

    fn of(&self, key: u128) -> u32 {
        let changes = self.0.as_ref().and_then(|changes| changes.get(&key));
        changes.copied().unwrap_or_default()
    }
}

/// Forgets denials that were caused by permits that were taken only for a moment.
#[cfg(feature = "redis")]
#[derive(Clone)]
pub(in crate::store) struct Forgetting(SpreadRef<Denials>);

#[cfg(feature = "redis")]
impl Forgetting {
    pub(in crate::store) fn forget(&self, checks: &[Check<'_>]) {
        for check in checks {
            self.0.table.forget(check.stored_fingerprint());
        }
    }
}

/// An action that changes a key without a decision to remember has done so by now or is about to,
/// even if nobody waits for its answer. Answers to questions decided before it must not be
/// remembered.
impl Drop for Noted {
    fn drop(&mut self) {
        for check in self.checks.iter().filter(|check| check.action.changes()) {
            self.denials.table.forget(check.key);
        }
    }
}
