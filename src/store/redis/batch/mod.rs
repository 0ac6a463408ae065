//! Batches: which questions are sent at once, which wait for others, and which are sent together.
//!
//! A *call* is one script call and its reply, for one question or for a *batch*. Questions that one
//! script can evaluate have a [queue](queue::Queue): on a single server one for each script, in a
//! cluster one for each script and subject, as a script can only use the keys of one slot.
//!
//! 1. A question is *sent unbatched* at once, in its caller's future, while few calls are in flight,
//!    so without load nothing waits. Otherwise it *waits* for a reply.
//! 2. As soon as a call has ended, waiting questions are *flushed* in order, as one script: up to
//!    256, and no more than a script should be busy with. How many calls may be in flight depends
//!    on [how far away the server is](super::connection::Reach).
//! 3. A batch runs in a task of its own. Each question gets its reply before the next batch leaves
//!    or after that, whichever keeps the server busy.
//!
//! If a call takes longer than questions may [wait](super::settings::Waits), they are sent as if it had
//! ended. Its own questions still get their replies. So a caller that stands still delays others for
//! this time at most.

mod batcher;
mod queue;

pub(super) use batcher::{Batcher, Shared};
