//! `Question`: the checks of one request, which one script evaluates in one atomic step.
//!
//! There are two ways to ask. The *fast path* takes checks that two numbers of each key's state
//! decide: final acquires under `gcra`, `token_bucket`, and `leaky_bucket` without delay, whatever
//! the rate. The *composed* script takes everything else: other algorithms, waiting, looks, charges
//! and refunds.

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::store::Check;
use crate::store::check::{OwnedCheck, of_each, question};
use crate::store::deny_cache::ticket::{CacheTicket, Changes};
use crate::store::redis::keys::fingerprint_of_state;
use crate::store::redis::reply::Decided;
use crate::store::redis::script::Parts;
use crate::time::Micros;
use debts::DebtQuestion;

mod asked;
mod batch;
mod composed;
mod debts;
mod debts_batch;
mod debts_reply;
mod runs;

pub(super) use batch::Batch;
#[cfg(test)]
pub(super) use debts_batch::TEXTS;

/// A composed check takes the server about as long as this many on the fast path.
const WEIGHT_IF_COMPOSED: usize = 4;

pub(super) struct Question {
    checks: SmallVec<[OwnedCheck; 1]>,
    path: Path,
    /// Zero asks the server's clock.
    now: Micros,
    /// Reports the answer to the deny cache.
    ticket: Option<CacheTicket>,
}

/// Which script evaluates it.
pub(super) enum Path {
    Debts(DebtQuestion),
    Composed {
        /// Questions with the same parts have the same script.
        parts: u16,
        /// Whether a check in another slot denies. Then only penalties are carried out.
        is_denied_elsewhere: bool,
    },
}

impl Question {
    /// In a cluster, the checks are about one subject.
    pub(super) fn new(checks: &[Check<'_>], now: Micros, ticket: Option<CacheTicket>) -> Self {
        let path = match DebtQuestion::of(checks) {
            Some(debts) => Path::Debts(debts),
            None => Path::composed(checks, false),
        };
        Self {
            checks: of_each(checks, OwnedCheck::of),
            path,
            now,
            ticket,
        }
    }

    /// About a request that a check in another slot denies.
    pub(super) fn denied_elsewhere(checks: &[Check<'_>], now: Micros) -> Self {
        Self {
            checks: of_each(checks, OwnedCheck::of),
            path: Path::composed(checks, true),
            now,
            ticket: None,
        }
    }

    fn is_denied_elsewhere(&self) -> bool {
        match self.path {
            Path::Debts(_) => false,
            Path::Composed {
                is_denied_elsewhere,
                ..
            } => is_denied_elsewhere,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn now(&self) -> Micros {
        self.now
    }

    pub(super) fn checks(&self) -> SmallVec<[Check<'_>; 1]> {
        question(&self.checks)
    }

    pub(super) fn first(&self) -> Check<'_> {
        self.checks[0].check()
    }

    /// The subject of its first check.
    pub(super) fn subject(&self) -> Subject {
        self.first().subject
    }

    /// Identifies its key, if questions about that key should share a batch: equal ones are one
    /// step of the script. `None` for a question about several keys.
    pub(super) fn coalescing_key(&self) -> Option<u128> {
        match (&self.path, &*self.checks) {
            (Path::Debts(debts), _) => debts.coalescing_key(&self.first()),
            (Path::Composed { .. }, [check]) => Some(fingerprint_of_state(&check.check())),
            (Path::Composed { .. }, _) => None,
        }
    }

    /// Its cost for the server, in lone fast-path acquires.
    pub(super) fn weight(&self) -> usize {
        match &self.path {
            Path::Debts(_) => self.checks.len(),
            Path::Composed { .. } => WEIGHT_IF_COMPOSED * self.checks.len(),
        }
    }

    /// Reports to the deny cache that these are sent now, so that the server decides after all changes
    /// up to now.
    pub(super) fn leave_now(questions: &mut [&mut Box<Self>]) {
        CacheTicket::are_sent_now(questions.iter_mut().filter_map(|it| it.ticket.as_mut()));
    }

    /// Reports these decisions to the deny cache.
    pub(super) fn conclude(&self, decisions: &[Decision], changes: &mut Changes) {
        if let Some(ticket) = &self.ticket {
            ticket.decided(&self.checks, decisions, changes);
        }
    }

    /// The answer after its script call failed. A corrupt value under a shadow check does not fail the
    /// request.
    pub(super) fn failed(&self, error: StoreError) -> Result<Decided, StoreError> {
        let is_shadow = self.checks.iter().all(|check| check.is_shadow);
        if !(is_shadow && error.kind() == StoreErrorKind::CorruptValue) {
            return Err(error);
        }
        let checks = self.checks.iter().map(OwnedCheck::check);
        Ok(checks.map(|check| check.failed(error.kind())).collect())
    }
}

impl Path {
    fn composed(checks: &[Check<'_>], is_denied_elsewhere: bool) -> Self {
        Self::Composed {
            parts: Parts::of(checks).number(),
            is_denied_elsewhere,
        }
    }
}
