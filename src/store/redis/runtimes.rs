//! Runtimes, on which connections and trips are served: which of them go on, and until when.

use std::convert::Infallible;

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

/// Closed when this runtime is gone, which drops its tasks then: also that of a client, of which nobody
/// can tell. Dropped, it ends its task.
pub(super) fn as_long_as_this_runtime() -> oneshot::Sender<Infallible> {
    let (here, at_the_task) = oneshot::channel();
    tokio::spawn(at_the_task);
    here
}
