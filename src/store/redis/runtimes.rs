//! Runtimes, on which connections and trips are served: which of them go on, and until when.

use std::convert::Infallible;
use std::future::pending;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::oneshot;

/// Whether a runtime has threads of its own. Any other one goes on only while somebody blocks on it.
pub(super) fn goes_on_by_itself(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread
}

/// The same of this one.
pub(super) fn goes_on_by_itself_here() -> bool {
    Handle::try_current().is_ok_and(|runtime| goes_on_by_itself(&runtime))
}

/// What has a task go on: of two with the same one neither stands still while the other goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// Its runtime's own threads, which always do.
    Threads,
    /// Whoever blocks on this runtime.
    Caller(Id),
    /// It is on no runtime, as no trip is.
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

/// A runtime that serves something.
pub(super) struct Serving {
    runtime: Handle,
    /// Closed when it is gone, which drops its tasks then: also that of a client, of which nobody can tell.
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

    /// Whether it is being shut down, or gone. A question that is lost with it finds this out at once, though
    /// that may be dropped before whatever tells that it is gone.
    pub(super) fn is_ending(&self) -> bool {
        // From before it drops the first of its tasks it takes no more of them.
        let task = self.runtime.spawn(pending::<()>());
        let is_refused = task.is_finished();
        task.abort();
        is_refused
    }
}
