//! `Reserving`: permits on their way to a caller that will wait for them or hold them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::Limiter;
use super::delay::Delay;
use super::held::Held;
use crate::time::SECOND;

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

impl Held {
    /// Waits until the permits are available, and then holds them; if dropped before, gives them
    /// back. Permits that this process granted for lack of an answer are asked for again once the
    /// store answers.
    pub(super) async fn once_there(mut self, ask_anew: impl Fn() -> Reserving + Sync) -> Self {
        while let Some(anew) = self.until_there(&ask_anew).await {
            self = anew;
        }
        self
    }

    /// Waits until the permits are available, or until the store has decided again. A small share
    /// may take so long that callers who come after the store's return would overtake this one.
    async fn until_there(&self, ask_anew: &(impl Fn() -> Reserving + Sync)) -> Option<Self> {
        if !self.decision.is_allowed() || self.decision.delay.is_zero() {
            return None;
        }
        let mut there = self.taken.limiter().delay(self.decision.delay());
        if !self.decision.is_local() {
            there.await;
            return None;
        }
        while self.does_store_answer_before(&mut there).await {
            let anew = ask_anew().await;
            // A full store answers looks but fails takes. The place in the share's queue is kept
            // until the store has decided.
            if anew.decision.store_failure().is_none() {
                return Some(anew);
            }
        }
        None
    }

    async fn does_store_answer_before(&self, there: &mut Delay) -> bool {
        let mut answered = pin!(self.until_store_answers());
        poll_fn(|cx| match there.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(false),
            Poll::Pending => answered.as_mut().poll(cx).map(|()| true),
        })
        .await
    }

    /// Checks every second whether the store is back. Perhaps all callers wait here, so that nobody
    /// else would find out; and part of a store can come back without a change of the circuit
    /// breaker.
    async fn until_store_answers(&self) {
        loop {
            sleep(SECOND).await;
            if self.taken.does_store_answer().await {
                return;
            }
        }
    }
}
