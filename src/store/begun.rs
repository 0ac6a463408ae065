//! What has begun its way to the store before its task goes on with it: what its caller asks next would else come to
//! the store first, and find taken what is being given back.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, unconstrained};

/// The same work, which has begun. Another task may go on with it.
#[cfg(feature = "redis")]
pub(crate) fn begun<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let mut work = Box::pin(work);
    let begun = begin(work.as_mut());
    async move {
        match begun {
            Poll::Ready(done) => done,
            // Its task polls it once more, and is woken.
            Poll::Pending => work.await,
        }
    }
}

/// Has a runtime go on with work that nobody needs to wait for, and that has begun, if this is called there.
pub(crate) fn go_on(
    runtime: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let (hand_on, handed_on) = oneshot::channel();
    let task = runtime.spawn(async move {
        // Nothing is handed on where nothing is left to do.
        if let Ok(work) = handed_on.await {
            work.await;
        }
    });
    let mut work = Box::pin(work);
    // A runtime that has ended, as one whose task is over at once, has no timers any more.
    let is_to_begin = is_here(runtime) && !task.is_finished();
    if !is_to_begin || begin(work.as_mut()).is_pending() {
        let _ = hand_on.send(work);
    }
    task
}

fn begin<F: Future>(work: Pin<&mut F>) -> Poll<F::Output> {
    // Whatever is left of the caller's budget: who has none would be put off.
    pin!(unconstrained(work)).poll(&mut Context::from_waker(Waker::noop()))
}

/// Whether this thread is at work on it, and nothing has gone wrong: a store that panics ends the process where
/// somebody else does already.
fn is_here(runtime: &Handle) -> bool {
    let is_it = |here: Handle| here.id() == runtime.id();
    Handle::try_current().is_ok_and(is_it) && !std::thread::panicking()
}
