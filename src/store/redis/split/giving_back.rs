//! `GivingBack`: what a part has taken, on its way back.

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Part;
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::store::deny_cache::noted::Forgetting;
use crate::store::owned::{OwnedCheck, question};
use crate::store::redis::connection::CONNECT_TIMEOUT;
use crate::store::redis::server::Server;
use crate::store::{Tries, go_on};

/// What gives back what a part has taken. Who asked hears of nothing that was taken, and so does not see to it.
pub(super) struct GivingBack {
    server: Server,
    /// Meanwhile others may have been denied for want of it.
    forgetting: Option<Forgetting>,
    checks: SmallVec<[OwnedCheck; 2]>,
}

impl GivingBack {
    pub(super) fn new(
        server: &Server,
        forgetting: Option<Forgetting>,
        part: &Part,
        answer: &Decisions,
    ) -> Self {
        Self {
            server: server.clone(),
            forgetting,
            checks: part.given_back(answer),
        }
    }

    /// Gives back, also when who asked does not wait for it; without a runtime, what was taken lapses.
    ///
    /// What has not been sent by the time that an attempt to connect may take lapses, too, as what is given
    /// back twice would be there twice. But a lease may be ended twice, and lives long: that is tried until
    /// its node has done it. Only the first try is to be waited for.
    pub(super) fn begin(mut self) -> Option<JoinHandle<()>> {
        if self.checks.is_empty() {
            return None;
        }
        let runtime = Handle::try_current().ok()?;
        Some(go_on(&runtime, async move {
            if self.is_done().await {
                return;
            }
            self.checks.retain(|check| ends_lease(check));
            if !self.checks.is_empty() {
                tokio::spawn(self.end_leases());
            }
        }))
    }

    async fn end_leases(self) {
        let lives = self
            .checks
            .iter()
            .filter_map(|check| check.algorithm.lease());
        let life = lives.max().unwrap_or_default().to_duration();
        let mut tries = Tries::to_end_leases(life);
        while tries.next().await && !self.is_done().await {}
    }

    /// Tries to: whether the node says that it has.
    async fn is_done(&self) -> bool {
        let checks = question(&self.checks);
        let answer = timeout(CONNECT_TIMEOUT, self.server.ask_composed(&checks)).await;
        if let Some(forgetting) = &self.forgetting {
            forgetting.forget(&checks);
        }
        let is_done = |decision: &Decision| decision.store_failure().is_none();
        matches!(answer, Ok(Ok(decisions)) if decisions.iter().all(is_done))
    }
}

fn ends_lease(check: &OwnedCheck) -> bool {
    matches!(check.action, Action::Release(_))
}
