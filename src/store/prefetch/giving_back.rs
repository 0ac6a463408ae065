//! How permits are given back: in order within an account, concurrently across accounts.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::account::Returned;
use super::shared::Shared;
use crate::caught::caught;
use crate::store::deadline::within;
use crate::store::owned::{OwnedCheck, of_each, question};
use crate::store::{Answer, Check, PendingAnswer, Store, Tries, UnderWay};

/// How many accounts give back at once: enough for thousands within a second, and few compared to
/// the questions of requests.
const MOST_AT_ONCE: usize = 16;

/// What gives back an account's permits, in this order: each check with its round trip.
type Trips = Vec<(OwnedCheck, PendingAnswer)>;

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
        let giving_back = GivingBack {
            under_way: self.under_way.clone(),
            deadline: self.deadline,
            shared: Weak::clone(&self.this),
        };
        let mut on_its_way = self.under_way.begin();
        Some(runtime.spawn(async move {
            if giving_back.beside_each_other(accounts).await {
                on_its_way.arrived();
            }
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
        let trip = |owned: OwnedCheck| self.trip(&owned).map(|trip| (owned, trip));
        let trips = |returned: Returned| returned.into_iter().filter_map(trip).collect();
        let accounts = accounts.into_iter().map(trips);
        accounts.filter(|trips: &Trips| !trips.is_empty()).collect()
    }

    fn trip(&self, owned: &OwnedCheck) -> Option<PendingAnswer> {
        // A store that panics has given nothing back. The permits of other accounts go back.
        match caught(|| self.inner.ask(&[owned.check()]))? {
            Answer::Pending(answer) => Some(answer),
            Answer::Ready(_) => None,
        }
    }
}

/// What an account has returned, unless that is nothing.
pub(super) fn if_any(returned: Returned) -> Option<Returned> {
    (!returned.is_empty()).then_some(returned)
}

/// How a task gives permits back. While the limiter is flushed, it asks again if the store surely
/// has not taken them back.
struct GivingBack<S: Store> {
    under_way: UnderWay,
    deadline: Duration,
    shared: Weak<Shared<S>>,
}

impl<S: Store> GivingBack<S> {
    /// A failure of one account does not hold up the others. Returns whether the store has all of
    /// it.
    async fn beside_each_other(self, accounts: Vec<Trips>) -> bool {
        let this = Arc::new(self);
        let (mut under_way, mut are_all_back) = (JoinSet::new(), true);
        for trips in accounts {
            if under_way.len() == MOST_AT_ONCE {
                are_all_back &= is_back(under_way.join_next().await);
            }
            under_way.spawn(Arc::clone(&this).one_after_the_other(trips));
        }
        while !under_way.is_empty() {
            are_all_back &= is_back(under_way.join_next().await);
        }
        are_all_back
    }

    /// With `gcra` and the buckets, an earlier batch can be given back only after the later ones.
    /// If one fails, the rest comes back with time.
    async fn one_after_the_other(self: Arc<Self>, trips: Trips) -> bool {
        for (check, trip) in trips {
            if !self.is_given_back(&check, trip).await {
                return false;
            }
        }
        true
    }

    async fn is_given_back(&self, check: &OwnedCheck, mut trip: PendingAnswer) -> bool {
        let mut tries = Tries::while_flushed();
        loop {
            match within(self.deadline, trip).await {
                Some(Ok(_)) => return true,
                Some(Err(error)) if !error.kind().may_have_counted() => {}
                // Giving back twice would create permits.
                Some(Err(_)) | None => return false,
            }
            if !tries.next(&self.under_way).await {
                return false;
            }
            let shared = self.shared.upgrade();
            match shared.and_then(|shared| shared.trip(check)) {
                Some(again) => trip = again,
                None => return false,
            }
        }
    }
}

fn is_back(joined: Option<Result<bool, JoinError>>) -> bool {
    matches!(joined, Some(Ok(true)))
}
