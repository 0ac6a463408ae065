//! `Watch`: looks out for the store's return while it is left alone, so that neither the rest of a
//! pause is waited for nor a user's question has to find out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::breaker::Breaker;
use crate::observe::BreakerState;
use crate::per_thread::Spread;
use crate::store::Recovered;
use crate::store::duty::{Duty, Turn};

/// The store is left alone for so long in any case; and so are those who said that it is back when
/// it was not.
const FIRST_LOOK: Duration = Duration::from_millis(250);
/// How often it is seen whether the watch is still of use.
const TICK: Duration = Duration::from_secs(1);
/// For so long after the last question the store is watched. Longer than a browser or a worker
/// pauses between two; a process that nobody asks does not knock at the door of a server for ever.
const TICKS_WITHOUT_QUESTIONS: u32 = 10;

/// After this somebody else watches: the runtime of the one who did is not driven.
const TURN: Duration = TICK.saturating_mul(2);

/// At most one task at a time, begun by the first question that is not asked.
#[derive(Default)]
pub(super) struct Watch {
    duty: Duty,
    /// Whether there was a question since this was last looked at.
    is_asked: AtomicBool,
}

impl Watch {
    /// A question was not asked, as the breaker is not closed.
    pub(super) fn not_asked(
        self: &Arc<Self>,
        breaker: &Spread<Breaker>,
        recovered: impl FnOnce() -> Option<Recovered>,
    ) {
        // Ten thousand a second come through here: they read, and seldom write.
        if !self.is_asked.load(Ordering::Relaxed) {
            self.is_asked.store(true, Ordering::Relaxed);
        }
        let Some(turn) = self.duty.begin(TURN) else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            self.duty.end(&turn);
            return;
        };
        // A store that cannot tell is asked no more often than it would be watched.
        if let Some(recovered) = recovered() {
            let watch = Arc::clone(self);
            runtime.spawn(On { watch, turn }.watch(breaker.downgrade(), recovered));
        }
    }
}

/// That it is watched, until this is dropped: also with its runtime.
struct On {
    watch: Arc<Watch>,
    turn: Turn,
}

impl On {
    async fn watch(mut self, breaker: Weak<Breaker>, mut recovered: Recovered) {
        tokio::time::sleep(FIRST_LOOK).await;
        let mut quiet = 0;
        while quiet < TICKS_WITHOUT_QUESTIONS && self.goes_on() {
            let Some(is_unanswered) = look(&breaker) else {
                return;
            };
            if is_unanswered {
                if tokio::time::timeout(TICK, recovered.as_mut()).await.is_ok() {
                    if self.goes_on()
                        && let Some(breaker) = breaker.upgrade()
                    {
                        breaker.recovered();
                    }
                    return;
                }
            } else {
                // It answers: its probes cost nothing, and are not to be doubled.
                tokio::time::sleep(TICK).await;
            }
            let is_asked = self.watch.is_asked.swap(false, Ordering::Relaxed);
            quiet = if is_asked { 0 } else { quiet + 1 };
        }
    }

    fn goes_on(&mut self) -> bool {
        self.watch.duty.go_on(&mut self.turn, TURN)
    }
}

impl Drop for On {
    fn drop(&mut self) {
        self.watch.duty.end(&self.turn);
    }
}

/// Whether it is open for want of an answer; `None` if nobody waits for its end any more.
fn look(breaker: &Weak<Breaker>) -> Option<bool> {
    let breaker = breaker.upgrade()?;
    (breaker.state() != BreakerState::Closed).then(|| breaker.is_unanswered())
}
