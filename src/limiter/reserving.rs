//! `Reserving`: permits on their way to somebody who will wait for them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

use super::Limiter;
use super::held::Held;

/// A question for permits ahead of time. Dropped before the answer it is seen through all the same:
/// what it has taken would keep others waiting, and how to give that back, only the answer says.
pub(crate) struct Reserving {
    limiter: Limiter,
    /// Taken when the answer is there.
    asking: Option<Asking>,
    /// Where it is seen through.
    runtime: Option<Handle>,
}

type Asking = Pin<Box<dyn Future<Output = Held> + Send>>;

impl Reserving {
    pub(super) fn new(
        limiter: Limiter,
        asking: impl Future<Output = Held> + Send + 'static,
    ) -> Self {
        Self {
            limiter,
            asking: Some(Box::pin(asking)),
            runtime: None,
        }
    }
}

impl Future for Reserving {
    type Output = Held;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Held> {
        if self.runtime.is_none() {
            self.runtime = Handle::try_current().ok();
        }
        let asking = self.asking.as_mut();
        let held = ready!(asking.expect(POLLED_AGAIN).as_mut().poll(cx));
        self.asking = None;
        Poll::Ready(held)
    }
}

/// What `Future` allows to panic about.
const POLLED_AGAIN: &str = "the future was polled after it was done";

impl Drop for Reserving {
    fn drop(&mut self) {
        // One that was never polled has no runtime, and has asked nothing.
        if let (Some(asking), Some(runtime)) = (self.asking.take(), &self.runtime) {
            self.limiter.see_through(runtime, asking);
        }
    }
}
