//! `Grant`: the permits for one request, from acquiring them to using them.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use crate::decision::Decision;
use crate::error::CheckError;
use crate::key::Key;
use crate::limiter::{Denied, Holding, Limiter, Permit, WaitingPolicy};
use crate::random::random;
use crate::time::{MINUTE, SECOND};

/// The longest pause after a denial. A denial reserves nothing and may end at any time: by a reset
/// of the key in any process, or by a change of the policy. Repeated calls do not extend a ban, and
/// one call a minute from each caller is little load for the store.
const ASKED_AGAIN_AFTER: Duration = MINUTE;

/// The shared source of permits for all services of a layer.
#[derive(Clone, Debug)]
pub(super) struct Source {
    limiter: Limiter,
    policy: WaitingPolicy,
    pub(super) key: Key,
    /// The policy's own cost by default.
    pub(super) cost: Option<u64>,
    /// How far ahead of time permits are reserved; unbounded by default.
    pub(super) max_wait: Option<Duration>,
    /// Whether the upstream may hold requests, so that the store is asked before each of them.
    pub(super) obeys: bool,
}

impl Source {
    pub(super) fn new(limiter: Limiter, policy: &str) -> Result<Self, CheckError> {
        Ok(Self {
            policy: limiter.waiting_policy(policy)?,
            limiter,
            key: Key::everybody(),
            cost: None,
            max_wait: None,
            obeys: false,
        })
    }

    /// Holds all requests of the same key, those of other processes, too.
    pub(super) fn hold(&self, time: Duration) {
        self.limiter.hold(self.holding(), time);
    }

    fn holding(&self) -> Holding<'_> {
        Holding {
            policy: &self.policy,
            key: &self.key,
            cost: self.cost,
        }
    }

    /// The permits for one request, as soon as they are there and no hold is in the way.
    async fn grant(self: Arc<Self>) -> Permit {
        // A new caller reserves less far ahead than callers that were denied before. Otherwise a
        // caller that arrives at the right moment, such as one that was just served, would overtake
        // them each time.
        let mut reach = self.max_wait.map_or(Duration::MAX, |longest| longest / 2);
        loop {
            let mut permit = self.reserve(&mut reach).await;
            if !self.obeys {
                return permit;
            }
            let left = self.limiter.held(self.holding()).await;
            if left.is_zero() {
                return permit;
            }
            // Its time has passed. Given back, it would let somebody go on together with one who waits
            // already.
            permit.begin_use();
            self.limiter.keep_pace_after(self.holding(), left).await;
        }
    }

    /// The permits for one request when they are there. Takes one round trip unless it is refused:
    /// because the wait would exceed `max_wait` or take years, by a ban, because the store fails, or
    /// by a limit that nobody can wait for and that has replaced one that could be.
    async fn reserve(&self, reach: &mut Duration) -> Permit {
        loop {
            let (policy, key) = (&self.policy, &self.key);
            let denied = match self.limiter.reserve(policy, key, self.cost, *reach).await {
                Ok(permit) => return permit,
                Err(denied) => denied,
            };
            let refused = self.refused(&denied).min(ASKED_AGAIN_AFTER);
            self.limiter.delay(refused + self.jittered()).await;
            *reach = self.max_wait.unwrap_or(Duration::MAX);
        }
    }

    /// The time until a denied caller may try again.
    fn refused(&self, denied: &Denied) -> Duration {
        let wait = denied.decision().map_or(Duration::ZERO, Decision::delay);
        match self.max_wait {
            Some(longest) if !wait.is_zero() => wait.saturating_sub(longest),
            // A user's own store may deny without a wait. Pause, so that it is not called in a busy
            // loop.
            _ => match denied.retry_after() {
                Some(wait) if !wait.is_zero() => wait,
                _ => SECOND,
            },
        }
    }

    /// A random extra pause, so that waiting callers do not all retry at the same time. It makes
    /// the order random: in order of arrival, the next place would always go to a caller that is
    /// about to give up.
    ///
    /// At most half of `max_wait`, which is how early a permit can be reserved. So no permit goes
    /// unused, and no new caller reserves it first.
    fn jittered(&self) -> Duration {
        let Some(longest) = self.max_wait else {
            return Duration::ZERO;
        };
        let half = (longest.min(ASKED_AGAIN_AFTER) / 2).as_nanos() as u64;
        Duration::from_nanos(random() % half)
    }
}

/// The permits for one request. If dropped before use, they are refunded.
pub(super) enum Grant {
    /// Not requested yet.
    None,
    /// Requested, or waited for.
    Coming(Coming),
    /// Available.
    Here(Box<Permit>),
}

impl Grant {
    /// Polls for the permits. Ready when they are available.
    pub(super) fn poll_here(&mut self, source: &Arc<Source>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Here(_) = self {
            return Poll::Ready(());
        }
        // Removed during the poll: if it panics, the next poll starts anew.
        let mut coming = match mem::replace(self, Self::None) {
            Self::Coming(coming) if !coming.is_left_behind() => coming,
            _ => Coming::from(source),
        };
        match coming.poll(cx) {
            Poll::Ready(permit) => {
                *self = Self::Here(Box::new(permit));
                Poll::Ready(())
            }
            Poll::Pending => {
                *self = Self::Coming(coming);
                Poll::Pending
            }
        }
    }

    /// Uses the permits. Returns `false` if there are none.
    pub(super) fn consume(&mut self) -> bool {
        match mem::replace(self, Self::None) {
            Self::Here(mut permit) => {
                permit.begin_use();
                true
            }
            _ => false,
        }
    }
}

/// Permits that are requested or waited for.
pub(super) struct Coming {
    /// The mutex is never locked: it only makes the service `Sync`, which this future is not.
    permit: Mutex<Pin<Box<dyn Future<Output = Permit> + Send>>>,
    /// The runtime whose timers they wait for.
    runtime: Option<Id>,
}

impl Coming {
    fn from(source: &Arc<Source>) -> Self {
        Self {
            permit: Mutex::new(Box::pin(Arc::clone(source).grant())),
            runtime: runtime_here(),
        }
    }

    /// Whether a caller on another runtime has started the wait. That runtime may be gone or no
    /// longer driven, and then its timers never fire.
    fn is_left_behind(&self) -> bool {
        let here = runtime_here();
        here.is_some() && here != self.runtime
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Permit> {
        let permit = self.permit.get_mut();
        let permit = permit.unwrap_or_else(PoisonError::into_inner);
        permit.as_mut().poll(cx)
    }
}

fn runtime_here() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}
