//! `Reserving`: permits on their way to a caller that will wait for them or hold them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::Limiter;
use super::held::Held;

/// A question for permits that may be given back. If it is dropped before the answer, the answer is
/// awaited in a task: only the answer says what is to be given back.
pub(crate) struct Reserving {
    limiter: Limiter,
    /// `None` once the answer is there.
    asking: Option<Asking>,
    /// Where that task runs.
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
        // Out of reach of `drop` if it panics: it must not be polled again then.
        let mut asking = self.asking.take().expect(POLLED_AGAIN);
        let held = asking.as_mut().poll(cx);
        if held.is_pending() {
            self.asking = Some(asking);
        }
        held
    }
}

/// `Future` allows this panic.
const POLLED_AGAIN: &str = "the future was polled after it was done";

impl Drop for Reserving {
    fn drop(&mut self) {
        // If it was never polled, it has no runtime and has asked nothing.
        if let (Some(asking), Some(runtime)) = (self.asking.take(), &self.runtime) {
            let left = async move { asking.await.leave() };
            let home = self.limiter.0.store.home();
            self.limiter
                .see_through(home.as_ref().unwrap_or(runtime), left);
        }
    }
}
