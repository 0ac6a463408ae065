//! Who is told of the breaker's states, in which order, and what the log says.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use tokio::time::Instant;

use super::Breaker;
use crate::error::StoreErrorKind;
use crate::observe::BreakerState;
use crate::trace;

/// Between two lines of the log about what goes on.
const WARN_PAUSE: Duration = Duration::from_secs(60);

/// When the log last had a line about something.
#[derive(Default)]
pub(super) struct Warned(Option<Instant>);

impl Warned {
    /// Whether it is to have one now.
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.0.is_none_or(|last| now >= last + WARN_PAUSE);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// A change of the breaker's state.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) from: BreakerState,
    pub(super) to: BreakerState,
    /// Why it opened, or had opened.
    pub(super) why: Option<StoreErrorKind>,
}

/// Who tells the changes, one at a time and in their order, and not under the lock: observers may
/// ask whatever they like.
pub(super) struct Telling<'a>(pub(super) &'a Breaker);

impl Telling<'_> {
    /// An observer that panics keeps nobody else from being told, nor of what comes next. Its panic is that of
    /// who tells, but not of one who panics already and has dropped a ticket for that: two end the process.
    pub(super) fn tell(self) {
        let mut told = Ok(());
        while let Some(change) = self.next() {
            told = told.and(caught(|| self.0.log(change)));
            for observer in self.0.observers.iter() {
                told = told.and(caught(|| observer.on_breaker(change.to)));
            }
        }
        if let Err(panic) = told
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }

    fn next(&self) -> Option<Change> {
        let mut inner = self.0.lock();
        let next = inner.untold.pop_front();
        inner.is_telling = next.is_some();
        next
    }
}

fn caught(tell: impl FnOnce()) -> std::thread::Result<()> {
    catch_unwind(AssertUnwindSafe(tell))
}

impl Breaker {
    /// The log has a line for the beginning of an outage and one for its end; the changes between them are
    /// probes. What does not mend itself is said again, once a minute.
    fn log(&self, change: Change) {
        match (change.from, change.to, change.why) {
            (_, BreakerState::Open, Some(why @ StoreErrorKind::Configuration)) => {
                self.warn_of_configuration(why);
            }
            (BreakerState::Closed, _, Some(why)) => trace::warn!(
                reason = %why,
                "the store failed too often: it is left alone and the failure modes decide"
            ),
            (_, BreakerState::Closed, Some(why)) => {
                trace::info!(reason = %why, "the store is back after it had failed too often");
            }
            _ => {}
        }
    }

    fn warn_of_configuration(&self, why: StoreErrorKind) {
        let is_due = self.lock().warned.is_due();
        if is_due {
            trace::warn!(
                reason = %why,
                "the store refuses this process: it is left alone and the failure modes decide until \
                 its address, password and rights are right"
            );
        }
    }

    #[cold]
    pub(super) fn warn_of_part(&self, why: StoreErrorKind) {
        let is_due = self.lock().warned_of_part.is_due();
        if is_due {
            trace::warn!(
                reason = %why,
                "a part of the store fails: the failure modes decide about its keys"
            );
        }
    }
}
