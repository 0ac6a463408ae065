//! `GivingBack`: gives back the permits of a part.

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::part::SlotPart;
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::store::check::{OwnedCheck, question};
use crate::store::deny_cache::ticket::Invalidation;
use crate::store::redis::batch::Batcher;
use crate::store::redis::connection::CONNECT_TIMEOUT;
use crate::store::redis::question::Question;
use crate::task::{Tries, spawn_polled};

/// Gives back the permits that a part has acquired. The caller does not know of them.
pub(super) struct GivingBack {
    batcher: Batcher,
    /// Forgets denials that the permits caused meanwhile.
    invalidation: Option<Invalidation>,
    checks: SmallVec<[OwnedCheck; 2]>,
}

impl GivingBack {
    pub(super) fn new(
        batcher: &Batcher,
        invalidation: Option<Invalidation>,
        part: &SlotPart,
        answer: &Decisions,
    ) -> Self {
        Self {
            batcher: batcher.clone(),
            invalidation,
            checks: part.given_back(answer),
        }
    }

    /// Gives back in the background. Without a runtime, the permits come back with time.
    ///
    /// So do permits that have not been sent within the time of a connection attempt, as giving back
    /// twice would create permits. But leases may be released twice, and live long: that is retried
    /// until the node has done it. Callers wait for the first try only.
    pub(super) fn begin(mut self) -> Option<JoinHandle<()>> {
        if self.checks.is_empty() {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        let mut in_flight_guard = self.batcher.in_flight_work.begin();
        Some(spawn_polled(&runtime, async move {
            if self.is_done().await {
                return in_flight_guard.arrived();
            }
            let all = self.checks.len();
            self.checks.retain(|check| ends_lease(check));
            let are_all = self.checks.len() == all;
            if !self.checks.is_empty() {
                tokio::spawn(async move {
                    self.end_leases().await;
                    if are_all {
                        in_flight_guard.arrived();
                    }
                });
            }
        }))
    }

    /// Releases leases until the node has done so, or they have lapsed.
    async fn end_leases(self) {
        let lives = self
            .checks
            .iter()
            .filter_map(|check| check.algorithm.lease());
        let life = lives.max().unwrap_or_default().to_duration();
        let mut tries = Tries::to_end_leases(life);
        while tries.next(&self.batcher.in_flight_work).await && !self.is_done().await {}
    }

    /// Tries once. Returns whether the node has done it.
    async fn is_done(&self) -> bool {
        let checks = question(&self.checks);
        let asked = Question::new(&checks, self.batcher.backend.now(), None);
        let answer = timeout(CONNECT_TIMEOUT, self.batcher.ask(Box::new(asked))).await;
        if let Some(invalidation) = &self.invalidation {
            invalidation.forget(&checks);
        }
        let is_done = |decision: &Decision| decision.store_failure().is_none();
        let answer = answer.map(|answer| answer.decisions());
        matches!(answer, Ok(Ok(decisions)) if decisions.iter().all(is_done))
    }
}

fn ends_lease(check: &OwnedCheck) -> bool {
    matches!(check.action, Action::Release(_))
}
