//! Runtimes, on which connections and trips are served: which of them go on, and until when.

use std::convert::Infallible;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// Whether a runtime has threads of its own. Any other one goes on only while somebody blocks on it.
pub(super) fn goes_on_by_itself(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::MultiThread
}

/// The same of this one.
pub(super) fn goes_on_by_itself_here() -> bool {
    Handle::try_current().is_ok_and(|runtime| goes_on_by_itself(&runtime))
}

/// Closed when this runtime is gone, which drops its tasks then: also that of a client, of which nobody
/// can tell. Dropped, it ends its task.
pub(super) fn as_long_as_this_runtime() -> oneshot::Sender<Infallible> {
    let (here, at_the_task) = oneshot::channel();
    tokio::spawn(at_the_task);
    here
}
