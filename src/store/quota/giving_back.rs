//! How permits are given back: in order within an account, concurrently across accounts.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};

use super::account::Returned;
use super::shared::Shared;
use crate::caught::caught;
use crate::store::deadline::within;
use crate::store::owned::{OwnedCheck, of_each, question};
use crate::store::{Answer, Check, PendingAnswer, Store};

/// How many accounts give back at once: enough for thousands within a second, and few compared to
/// the questions of requests.
const MOST_AT_ONCE: usize = 16;

/// The round trips that give back an account's permits, in this order.
type Trips = Vec<PendingAnswer>;

impl<S: Store> Shared<S> {
    /// Gives back what an account has returned, without waiting for the answers.
    pub(super) fn give_back(&self, returned: Returned) {
        drop(self.give_back_all([returned]));
    }

    /// Gives back what several accounts have returned. Nobody needs to wait for the task.
    pub(super) fn give_back_all(
        &self,
        accounts: impl IntoIterator<Item = Returned>,
    ) -> Option<JoinHandle<()>> {
        let accounts = self.trips(accounts);
        if accounts.is_empty() {
            return None;
        }
        // Without a runtime, the permits come back with time.
        let runtime = Handle::try_current().ok()?;
        let (on_its_way, deadline) = (self.under_way.begin(), self.deadline);
        Some(runtime.spawn(async move {
            beside_each_other(accounts, deadline).await;
            drop(on_its_way);
        }))
    }

    /// Gives permits back before a question that must find them in the store. They go back whatever
    /// becomes of the question: nobody holds them any more.
    pub(super) fn ask_after(
        this: &Arc<Self>,
        accounts: Vec<Returned>,
        checks: &[Check<'_>],
    ) -> PendingAnswer {
        let (shared, given_back) = (Arc::clone(this), this.give_back_all(accounts));
        let checks = of_each(checks, OwnedCheck::of);
        Box::pin(async move {
            if let Some(given_back) = given_back {
                // An error means that its runtime has ended.
                let _ = given_back.await;
            }
            match shared.inner.ask(&question(&checks)) {
                Answer::Ready(answer) => answer,
                Answer::Pending(answer) => answer.await,
            }
        })
    }

    /// Asks the store now, so that the answers can be awaited after `self` is gone.
    fn trips(&self, accounts: impl IntoIterator<Item = Returned>) -> Vec<Trips> {
        // A store that panics has given nothing back. The permits of other accounts go back.
        let trip = |owned: OwnedCheck| match caught(|| self.inner.ask(&[owned.check()]))? {
            Answer::Pending(answer) => Some(answer),
            Answer::Ready(_) => None,
        };
        let trips = |returned: Returned| returned.into_iter().filter_map(trip).collect();
        let accounts = accounts.into_iter().map(trips);
        accounts.filter(|trips: &Trips| !trips.is_empty()).collect()
    }
}

/// What an account has returned, unless that is nothing.
pub(super) fn if_any(returned: Returned) -> Option<Returned> {
    (!returned.is_empty()).then_some(returned)
}

/// A failure of one account does not hold up the others.
async fn beside_each_other(accounts: Vec<Trips>, deadline: Duration) {
    let mut under_way = JoinSet::new();
    for trips in accounts {
        if under_way.len() == MOST_AT_ONCE {
            under_way.join_next().await;
        }
        under_way.spawn(one_after_the_other(trips, deadline));
    }
    while under_way.join_next().await.is_some() {}
}

/// With `gcra` and the buckets, an earlier batch can be given back only after the later ones. If
/// one fails, the rest comes back with time.
async fn one_after_the_other(trips: Trips, deadline: Duration) {
    for trip in trips {
        if !matches!(within(deadline, trip).await, Some(Ok(_))) {
            return;
        }
    }
}
