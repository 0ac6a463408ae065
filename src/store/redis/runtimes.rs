//! The runtimes that serve connections and trips: which of them make progress by themselves, and
//! how long they exist.

use std::convert::Infallible;
use std::future::pending;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::yield_now;

/// Whether a runtime has threads of its own. Any other one makes progress only while a thread
/// blocks on it.
pub(super) fn goes_on_by_itself(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread
}

/// The same for the current runtime.
pub(super) fn goes_on_by_itself_here() -> bool {
    Handle::try_current().is_ok_and(|runtime| goes_on_by_itself(&runtime))
}

/// What drives a task. If two tasks have the same driver, neither stands still while the other
/// makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// Its runtime's own threads, which always run.
    Threads,
    /// A thread that blocks on this runtime.
    Caller(Id),
    /// It is on no runtime; no trip is like that.
    Unknown,
}

impl Driver {
    pub(super) fn of(runtime: Option<&Handle>) -> Self {
        match runtime {
            Some(runtime) if goes_on_by_itself(runtime) => Self::Threads,
            Some(runtime) => Self::Caller(runtime.id()),
            None => Self::Unknown,
        }
    }
}

/// A runtime that serves a connection or a trip.
pub(super) struct Serving {
    runtime: Handle,
    /// Closed when the runtime is gone, as that drops its tasks: including the client's, which
    /// nothing else would show.
    is_there: oneshot::Sender<Infallible>,
}

impl Serving {
    pub(super) fn here() -> Self {
        let (is_there, at_the_task) = oneshot::channel();
        tokio::spawn(at_the_task);
        Self {
            runtime: Handle::current(),
            is_there,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        !self.is_there.is_closed()
    }

    /// Whether the runtime is shutting down or gone. A question that is lost with it can ask this
    /// at once, even if it is dropped before the task that would show that the runtime is gone.
    pub(super) fn is_ending(&self) -> bool {
        is_ending(&self.runtime)
    }
}

/// Whether the current runtime is shutting down or gone.
pub(super) fn is_ending_here() -> bool {
    Handle::try_current().is_ok_and(|runtime| is_ending(&runtime))
}

/// The same for a task whose work has just failed, perhaps because of that: it does not get any
/// further if its runtime's threads have not noticed yet that they are to end.
pub(super) async fn has_failed_with_its_runtime() -> bool {
    yield_now().await;
    is_ending_here()
}

fn is_ending(runtime: &Handle) -> bool {
    // A runtime that shuts down refuses new tasks before it drops the first of the old ones.
    let task = runtime.spawn(pending::<()>());
    let is_refused = task.is_finished();
    task.abort();
    is_refused
}
