//! `Ending`: leases that are about to be released.

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::leases::Lease;
use super::{Limiter, failure};
use crate::algorithm::Action;
use crate::store::{Answer, OnItsWay, Store as _, Tries};

/// Leases that the store is asked to release until it has done so, or they have lapsed.
///
/// A runtime that ends drops this task. The release is then restarted on the runtime on which the
/// leases were taken, if that is another one. Releasing a lease twice does no harm.
pub(super) struct Ending {
    pub(super) limiter: Limiter,
    /// Empty when there is nothing left to do.
    pub(super) leases: SmallVec<[Lease; 1]>,
    /// Whether the question that took the leases may still reach the store after the first release,
    /// over a connection that was dropped meanwhile. Then the release is repeated even if it found
    /// nothing to release.
    pub(super) is_in_doubt: bool,
    /// Where to restart.
    pub(super) elsewhere: Option<Handle>,
}

impl Ending {
    /// Awaits the first answer, and asks again if it is needed. `on_its_way` ends with the first
    /// answer.
    pub(super) async fn go_on(mut self, first: Answer, on_its_way: OnItsWay) {
        let is_done = failure(first).await.is_none() && !self.is_in_doubt;
        drop(on_its_way);
        if !is_done {
            self.ask_again().await;
        }
        self.leases.clear();
    }

    /// Soon at first, then less often.
    async fn ask_again(&self) {
        let life = self.leases.iter().map(Lease::life).max();
        let mut tries = Tries::to_end_leases(life.unwrap_or_default());
        while tries.next().await {
            if failure(self.ask()).await.is_none() {
                return;
            }
        }
    }

    fn ask(&self) -> Answer {
        let leases = self.leases.iter();
        let checks = leases.map(|lease| lease.check(Action::Release));
        let checks: SmallVec<[_; 1]> = checks.collect();
        self.limiter.0.store.ask(&checks)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(runtime) = self.elsewhere.take().filter(|_| !self.leases.is_empty()) else {
            return;
        };
        let again = Self {
            limiter: self.limiter.clone(),
            leases: std::mem::take(&mut self.leases),
            is_in_doubt: self.is_in_doubt,
            elsewhere: None,
        };
        let on_its_way = self.limiter.on_its_way();
        runtime.spawn(async move {
            let first = again.ask();
            again.go_on(first, on_its_way).await;
        });
    }
}
