//! Wakes a lane for a question that will come soon.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::super::signs::IDLE;
use super::{Lane, Shared};

impl Lane {
    /// Wakes an idle connection, or makes one, for a question that will come soon, which then waits
    /// for its answer only. Nobody waits for this, and the question still checks the connection
    /// itself, as this task may be on a runtime that is not driven.
    ///
    /// A silent node is left alone, as it is listened to already.
    pub(in crate::store::redis) fn warm_up(&self) {
        let shared = &self.0;
        let is_silent = shared
            .silence
            .as_ref()
            .is_some_and(|silence| silence.is_silent());
        if is_silent || shared.live().is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        // The turn lapses by itself: a connection that has answered in it is not idle before.
        if shared.warming_up.begin(IDLE).is_some() {
            let end = Instant::now() + IDLE;
            runtime.spawn(Arc::clone(shared).warm_up_until(end));
        }
    }
}

impl Shared {
    /// A later answer is ignored. On a runtime that was not driven meanwhile it may have come long
    /// ago, and would make a connection that was closed since look like one in use.
    async fn warm_up_until(self: Arc<Self>, end: Instant) {
        let mut woken = pin!(self.woken());
        let in_time = poll_fn(|cx| match Instant::now() < end {
            true => woken.as_mut().poll(cx).map(drop),
            false => Poll::Ready(()),
        });
        let _ = timeout_at(end, in_time).await;
    }
}
