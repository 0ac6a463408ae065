//! `CacheTicket`: a question in flight to the store, and what its answer changes in the cache.

#[cfg(feature = "redis")]
use std::{ops::Deref, ptr};

use smallvec::SmallVec;

use super::table::{Denials, Version};
use crate::algorithm::LaterVerdict;
use crate::decision::{Decision, Decisions};
use crate::error::StoreError;
use crate::sharded::{ShardedArc, ShardedRef};
use crate::store::Check;
#[cfg(feature = "redis")]
use crate::store::check::ByFingerprint;
use crate::store::check::{FingerprintMap, OwnedCheck, of_each};
use crate::time::Micros;

pub(in crate::store) struct CacheTicket {
    denials: ShardedRef<Denials>,
    /// When the question was sent, on the clock of the denials. The store decides no earlier.
    sent: Micros,
    keys: SmallVec<[TicketKey; 1]>,
}

/// The key of a check.
struct TicketKey {
    key: u128,
    version: Version,
    /// Whether the check changes it.
    is_changed: bool,
}

impl CacheTicket {
    /// Forgets the keys that the question is about to change, and notes the versions of all.
    pub(super) fn new(denials: &ShardedArc<Denials>, checks: &[Check<'_>], sent: Micros) -> Self {
        let note = |check: &Check<'_>| {
            let (key, is_changed) = (check.stored_fingerprint(), check.action.changes());
            if is_changed {
                denials.table.forget(key);
            }
            TicketKey {
                key,
                version: denials.table.version(key),
                is_changed,
            }
        };
        Self {
            keys: of_each(checks, note),
            denials: denials.hold(),
            sent,
        }
    }

    /// Notes that these questions are sent only now, so that the store decides after all changes up
    /// to now.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn are_sent_now<'a>(questions: impl Iterator<Item = &'a mut Self>) {
        let mut read: Option<(*const Denials, Micros)> = None;
        for ticket in questions {
            let denials = &*ticket.denials;
            // Nearly always the same ones, and a clock takes long to read.
            let now = match read {
                Some((of, now)) if ptr::eq(of, denials) => now,
                _ => denials.now(),
            };
            read = Some((denials, now));
            ticket.sent = now;
            for TicketKey { key, version, .. } in &mut ticket.keys {
                *version = denials.table.version(*key);
            }
        }
    }

    /// For a caller that may give back the permits of this question, which changes its keys.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn invalidation(&self) -> Invalidation {
        Invalidation(self.denials.clone())
    }

    /// `checks` are those that it was made of.
    pub(in crate::store) fn answered(
        self,
        checks: &[OwnedCheck],
        answer: &Result<Decisions, StoreError>,
    ) {
        if let Ok(decisions) = answer {
            self.decided(checks, decisions, &mut Changes::default());
        }
    }

    /// `changes` are those by questions that were sent with this one and decided before it. Adds
    /// its own.
    pub(in crate::store) fn decided(
        &self,
        checks: &[OwnedCheck],
        decisions: &[Decision],
        changes: &mut Changes,
    ) {
        let all_allow = checks
            .iter()
            .zip(decisions)
            .all(|(check, decision)| check.is_shadow || decision.is_allowed());
        let table = &self.denials.table;
        for ((ticket, check), decision) in self.keys.iter().zip(checks).zip(decisions) {
            let may_have_taken = all_allow && decision.is_allowed();
            if may_have_taken && check.action.acquires() == 0 {
                continue;
            }
            if may_have_taken || (check.algorithm.is_penalty() && decision.is_allowed()) {
                // A denied subject must also wait for these permits, and a penalty may have counted
                // a denial.
                table.forget(ticket.key);
                changes.add(ticket.key);
            } else if let Some(known) = LaterVerdict::by(&check.algorithm, &check.action, decision)
            {
                let received = self.denials.now();
                let version = ticket.version.after(changes.of(ticket.key));
                table.remember(ticket.key, version, known, self.sent, received);
            }
        }
    }
}

/// How often the questions of a batch so far have changed each key. Decisions about later ones were
/// made after that, and may be remembered.
#[derive(Default)]
pub(in crate::store) struct Changes(Option<FingerprintMap<u32>>);

impl Changes {
    /// For the questions of a batch with these answers. If nothing is denied, nothing is remembered.
    #[cfg(feature = "redis")]
    pub(in crate::store) fn of_batch<A: Deref<Target = [Decision]>>(
        answers: &[Result<A, StoreError>],
    ) -> Self {
        let mut decisions = answers.iter().flatten().flat_map(|answer| answer.iter());
        let matters = answers.len() > 1 && decisions.any(|decision| !decision.is_allowed());
        Self(
            matters.then(|| FingerprintMap::with_capacity_and_hasher(answers.len(), ByFingerprint)),
        )
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

/// Forgets denials that were caused by permits that were acquired only for a moment.
#[cfg(feature = "redis")]
#[derive(Clone)]
pub(in crate::store) struct Invalidation(ShardedRef<Denials>);

#[cfg(feature = "redis")]
impl Invalidation {
    pub(in crate::store) fn forget(&self, checks: &[Check<'_>]) {
        for check in checks {
            self.0.table.forget(check.stored_fingerprint());
        }
    }
}

/// The question may have changed its keys even if its answer was not awaited. So answers to questions
/// that were decided before it must not be remembered.
impl Drop for CacheTicket {
    fn drop(&mut self) {
        for ticket in self.keys.iter().filter(|ticket| ticket.is_changed) {
            self.denials.table.forget(ticket.key);
        }
    }
}
