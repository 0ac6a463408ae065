//! `Grant`: the permits for one request, from the question for them until they are used.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use crate::decision::Decision;
use crate::error::CheckError;
use crate::key::Key;
use crate::limiter::{Held, Limiter, Waitable};
use crate::random::random;
use crate::time::{MINUTE, SECOND};

/// How long a refusal is believed. It is no reservation, and may be lifted at any time: by a reset of
/// the key, by whatever process, or by a change of the policy. Being asked about makes no ban longer,
/// and a question a minute from each who waits is little to the store.
const ASKED_AGAIN_AFTER: Duration = MINUTE;

/// Where the grants of all services of a layer come from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    limiter: Limiter,
    policy: Waitable,
    pub(super) key: Key,
    /// The policy's own unless said.
    pub(super) cost: Option<u32>,
    /// How far ahead of time permits are taken; as far as it takes unless said.
    pub(super) max_wait: Option<Duration>,
}

impl Source {
    pub(super) fn new(limiter: Limiter, policy: &str) -> Result<Self, CheckError> {
        Ok(Self {
            policy: limiter.waitable(policy)?,
            limiter,
            key: Key::everybody(),
            cost: None,
            max_wait: None,
        })
    }

    /// The permits for one request, as soon as they are there. One trip, unless they are refused:
    /// because they would take longer than is said, by a store that fails, by a ban, because they would take
    /// years, or by a limit that nobody can wait for, which has taken the place of one that could be.
    async fn grant(self: Arc<Self>) -> Held {
        // Who comes reaches less far than those who were refused before: else who comes at the right moment,
        // as who has just been served does, would overtake them each time.
        let mut reach = self.max_wait.map_or(Duration::MAX, |longest| longest / 2);
        loop {
            let (policy, key) = (&self.policy, &self.key);
            let held = self.limiter.reserve(policy, key, self.cost, reach).await;
            if held.is_allowed() {
                return held;
            }
            let refused = self.refused(held.decision()).min(ASKED_AGAIN_AFTER);
            drop(held);
            self.limiter.delay(refused + self.scattered()).await;
            reach = self.max_wait.unwrap_or(Duration::MAX);
        }
    }

    /// How long until who was refused may be let in.
    fn refused(&self, decision: &Decision) -> Duration {
        let wait = decision.delay();
        match self.max_wait {
            Some(longest) if !wait.is_zero() => wait.saturating_sub(longest),
            _ => decision.retry_after().unwrap_or(SECOND),
        }
    }

    /// How much later to ask again, so that those who wait do not all ask at the same instants. It is the
    /// lot who of them is next: in the order in which they came it would be one who is about to give up, each
    /// time, and leave the place behind.
    ///
    /// Up to half of the time by which a place is had too early: so no permit goes unused, and nobody who
    /// comes reaches it before.
    fn scattered(&self) -> Duration {
        let Some(longest) = self.max_wait else {
            return Duration::ZERO;
        };
        let half = (longest.min(ASKED_AGAIN_AFTER) / 2).as_nanos() as u64;
        Duration::from_nanos(random() % half.max(1))
    }
}

/// The permits for one request. Dropped before they are used, they are given back.
pub(super) enum Grant {
    /// Not asked for yet.
    None,
    /// On their way.
    Coming(Coming),
    /// There.
    Here(Box<Held>),
}

impl Grant {
    /// Asks for the permits, and is ready when they are there.
    pub(super) fn poll_here(&mut self, source: &Arc<Source>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            *self = match self {
                Self::None => Self::Coming(Coming::from(source)),
                Self::Coming(coming) if coming.is_left_behind() => Self::None,
                Self::Coming(coming) => Self::Here(Box::new(ready!(coming.poll(cx)))),
                Self::Here(_) => return Poll::Ready(()),
            };
        }
    }

    /// Uses the permits; `false` when they are not there.
    pub(super) fn spend(&mut self) -> bool {
        match std::mem::replace(self, Self::None) {
            Self::Here(mut held) => {
                held.go_on();
                true
            }
            _ => false,
        }
    }
}

/// Permits on their way.
pub(super) struct Coming {
    /// The lock is never taken: it makes the service one that can be shared, which this future is not.
    held: Mutex<Pin<Box<dyn Future<Output = Held> + Send>>>,
    /// Whose clock they are waited for on.
    runtime: Option<Id>,
}

impl Coming {
    fn from(source: &Arc<Source>) -> Self {
        Self {
            held: Mutex::new(Box::pin(Arc::clone(source).grant())),
            runtime: runtime_here(),
        }
    }

    /// Whether somebody gave up waiting on another runtime. It may be gone, or driven no more: then its clock
    /// wakes nobody.
    fn is_left_behind(&self) -> bool {
        let here = runtime_here();
        here.is_some() && here != self.runtime
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Held> {
        let held = self.held.get_mut();
        let held = held.unwrap_or_else(PoisonError::into_inner);
        held.as_mut().poll(cx)
    }
}

fn runtime_here() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}
