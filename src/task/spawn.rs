//! Spawns work that is polled once before the caller goes on. Otherwise the caller's next call
//! could reach the store first and find permits still charged that are being refunded. Also catches
//! panics of user code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, unconstrained};

/// Polls the work once and returns the rest, which another task may await.
#[cfg(feature = "redis")]
pub(crate) fn poll_once<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let mut work = Box::pin(work);
    let start = begin(work.as_mut());
    async move {
        match start {
            Poll::Ready(done) => done,
            // The next poll registers the waker.
            Poll::Pending => work.await,
        }
    }
}

/// Spawns background work. If called on that runtime, the work has been polled once when this
/// returns.
pub(crate) fn spawn_polled(
    runtime: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let (hand_on, handed_on) = oneshot::channel();
    let task = runtime.spawn(async move {
        // Nothing is sent if the work is already done.
        if let Ok(work) = handed_on.await {
            work.await;
        }
    });
    let mut work = Box::pin(work);
    // A runtime that has shut down finishes the task immediately and has no timers any more.
    let is_to_begin = is_here(runtime) && !task.is_finished();
    if !is_to_begin || begin(work.as_mut()).is_pending() {
        let _ = hand_on.send(work);
    }
    task
}

fn begin<F: Future>(work: Pin<&mut F>) -> Poll<F::Output> {
    // Without the caller's task budget: an exhausted one would delay the work.
    pin!(unconstrained(work)).poll(&mut Context::from_waker(Waker::noop()))
}

/// Whether this thread runs on that runtime and is not panicking: a second panic during a panic
/// would abort the process.
fn is_here(runtime: &Handle) -> bool {
    Handle::try_current().is_ok_and(|here| here.id() == runtime.id()) && !std::thread::panicking()
}

/// Whether a runtime is shutting down or gone.
#[cfg(feature = "redis")]
pub(crate) fn is_ending(runtime: &Handle) -> bool {
    // A runtime that shuts down refuses new tasks before it drops the first of the old ones.
    let task = runtime.spawn(std::future::pending::<()>());
    let is_refused = task.is_finished();
    task.abort();
    is_refused
}

/// Runs user code, such as an observer or a store. Returns `None` if it panics, after the panic
/// hook has run.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}
