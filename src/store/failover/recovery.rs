//! `RecoveryWatch`: notices that a store is back while the circuit is open, so that requests need
//! neither wait for the end of the pause nor probe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::breaker::Breaker;
use crate::observer::BreakerState;
use crate::sharded::ShardedArc;
use crate::store::Recovered;
use crate::task::{LeaderLock, Turn};

/// The circuit stays open for at least this long, even if the store wrongly reports that it is back.
const FIRST_LOOK: Duration = Duration::from_millis(250);
/// How often the watch checks whether it is still needed.
const TICK: Duration = Duration::from_secs(1);
/// The store is watched for this many ticks after the last question: longer than the usual pause
/// between requests, but not for ever.
const TICKS_WITHOUT_QUESTIONS: u32 = 10;

/// After this another task takes over, since the runtime of the first one is not driven.
const TURN: Duration = TICK.saturating_mul(2);

/// At most one task at a time, started by the first question that is not sent.
#[derive(Default)]
pub(super) struct RecoveryWatch {
    leader: LeaderLock,
    /// Whether there was a question since this was last checked.
    is_asked: AtomicBool,
}

impl RecoveryWatch {
    /// A question was not sent because the breaker is not closed.
    pub(super) fn not_asked(
        self: &Arc<Self>,
        breaker: &ShardedArc<Breaker>,
        recovered: impl FnOnce() -> Option<Recovered>,
    ) {
        // Read first, since a write would be contended: ten thousand questions a second come here.
        if !self.is_asked.load(Ordering::Relaxed) {
            self.is_asked.store(true, Ordering::Relaxed);
        }
        let Some(turn) = self.leader.begin(TURN) else {
            return;
        };
        let Ok(runtime) = Handle::try_current() else {
            self.leader.end(&turn);
            return;
        };
        // A store that cannot be watched is asked for this future once in each `TURN`.
        if let Some(recovered) = recovered() {
            let watch = Arc::clone(self);
            runtime.spawn(WatchTask { watch, turn }.run(breaker.downgrade(), recovered));
        }
    }
}

/// The running watch. It ends when this is dropped, also together with its runtime.
struct WatchTask {
    watch: Arc<RecoveryWatch>,
    turn: Turn,
}

impl WatchTask {
    async fn run(mut self, breaker: Weak<Breaker>, mut recovered: Recovered) {
        tokio::time::sleep(FIRST_LOOK).await;
        let mut ticks_without_questions = 0;
        while ticks_without_questions < TICKS_WITHOUT_QUESTIONS && self.goes_on() {
            let Some(is_unanswered) = is_unanswered(&breaker) else {
                return;
            };
            if !is_unanswered {
                // The store answers, so probes cost little and need not be doubled.
                tokio::time::sleep(TICK).await;
            } else if tokio::time::timeout(TICK, recovered.as_mut()).await.is_ok() {
                if self.goes_on()
                    && let Some(breaker) = breaker.upgrade()
                {
                    breaker.recovered();
                }
                return;
            }
            match self.watch.is_asked.swap(false, Ordering::Relaxed) {
                true => ticks_without_questions = 0,
                false => ticks_without_questions += 1,
            }
        }
    }

    fn goes_on(&mut self) -> bool {
        self.watch.leader.extend(&mut self.turn, TURN)
    }
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.watch.leader.end(&self.turn);
    }
}

/// Whether the breaker is open for lack of an answer; `None` if it is closed or gone.
fn is_unanswered(breaker: &Weak<Breaker>) -> Option<bool> {
    let breaker = breaker.upgrade()?;
    (breaker.state() != BreakerState::Closed).then(|| breaker.is_unanswered())
}
