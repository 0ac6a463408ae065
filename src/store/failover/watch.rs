//! `Watch`: looks out for the store's return while it is left alone, so that neither the rest of a
//! pause is waited for nor a user's question has to find out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::breaker::Breaker;
use crate::observe::BreakerState;
use crate::store::Recovered;

/// The store is left alone for so long in any case; and so are those who said that it is back when
/// it was not.
const FIRST_LOOK: Duration = Duration::from_millis(250);
/// How often it is seen whether the watch is still of use.
const TICK: Duration = Duration::from_secs(1);
/// For so long after the last question the store is watched. Longer than a browser or a worker
/// pauses between two; a process that nobody asks does not knock at the door of a server for ever.
const TICKS_WITHOUT_QUESTIONS: u32 = 10;

/// At most one task at a time, begun by the first question that is not asked.
#[derive(Default)]
pub(super) struct Watch {
    is_on: AtomicBool,
    /// Whether there was a question since this was last looked at.
    is_asked: AtomicBool,
}

impl Watch {
    /// A question was not asked, as the breaker is not closed.
    pub(super) fn not_asked(
        self: &Arc<Self>,
        breaker: &Arc<Breaker>,
        recovered: impl FnOnce() -> Option<Recovered>,
    ) {
        // Ten thousand a second come through here: they read, and seldom write.
        if !self.is_asked.load(Ordering::Relaxed) {
            self.is_asked.store(true, Ordering::Relaxed);
        }
        if self.is_on.load(Ordering::Relaxed) || self.is_on.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            self.is_on.store(false, Ordering::Relaxed);
            return;
        };
        // A store that cannot tell never will: it stays as if it were watched.
        if let Some(recovered) = recovered() {
            let on = On(Arc::clone(self));
            runtime.spawn(on.watch(Arc::downgrade(breaker), recovered));
        }
    }
}

/// That it is watched, until this is dropped: also with its runtime.
struct On(Arc<Watch>);

impl On {
    async fn watch(self, breaker: Weak<Breaker>, mut recovered: Recovered) {
        tokio::time::sleep(FIRST_LOOK).await;
        let mut quiet = 0;
        while quiet < TICKS_WITHOUT_QUESTIONS {
            let Some(is_unanswered) = look(&breaker) else {
                return;
            };
            if is_unanswered {
                if tokio::time::timeout(TICK, recovered.as_mut()).await.is_ok() {
                    if let Some(breaker) = breaker.upgrade() {
                        breaker.recovered();
                    }
                    return;
                }
            } else {
                // It answers: its probes cost nothing, and are not to be doubled.
                tokio::time::sleep(TICK).await;
            }
            let is_asked = self.0.is_asked.swap(false, Ordering::Relaxed);
            quiet = if is_asked { 0 } else { quiet + 1 };
        }
    }
}

impl Drop for On {
    fn drop(&mut self) {
        self.0.is_on.store(false, Ordering::Relaxed);
    }
}

/// Whether it is open for want of an answer; `None` if nobody waits for its end any more.
fn look(breaker: &Weak<Breaker>) -> Option<bool> {
    let breaker = breaker.upgrade()?;
    (breaker.state() != BreakerState::Closed).then(|| breaker.is_unanswered())
}
