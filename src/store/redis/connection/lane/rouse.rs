//! How a lane is woken for a question that is to come soon.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::super::signs::IDLE;
use super::{Lane, Shared};

impl Lane {
    /// Has a connection that is idle woken, or one made, for a question that is to come soon: what that waits
    /// for is then the answer alone. Nobody waits for this, and the question sees to the connection itself
    /// all the same: this is done by a task on a runtime that may not be driven.
    ///
    /// A node that has gone silent is left alone; it is listened to already.
    pub(in crate::store::redis) fn rouse(&self) {
        let shared = &self.0;
        let is_silent = shared.doubt.as_ref().is_some_and(|doubt| doubt.is_silent());
        if is_silent || shared.live().is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // The turn is left to lapse: who has answered in it is idle no sooner.
        if shared.roused.begin(IDLE).is_some() {
            let end = Instant::now() + IDLE;
            runtime.spawn(Arc::clone(shared).rouse_until(end));
        }
    }
}

impl Shared {
    /// What comes later is not listened to. On a runtime that was not driven meanwhile it may have come long
    /// ago, and would have a connection that was closed since be taken for one in use.
    async fn rouse_until(self: Arc<Self>, end: Instant) {
        let mut woken = pin!(self.woken());
        let in_time = poll_fn(|cx| match Instant::now() < end {
            true => woken.as_mut().poll(cx).map(drop),
            false => Poll::Ready(()),
        });
        let _ = timeout_at(end, in_time).await;
    }
}
