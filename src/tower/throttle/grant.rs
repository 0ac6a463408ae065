//! `Grant`: the permits for one request, from the question for them until they are used.

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

/// How long a refusal is believed. It reserves nothing and may be lifted at any time: by a reset of
/// the key in any process, or by a change of the policy. Asking does not prolong a ban, and one
/// question a minute from each caller is little for the store.
const ASKED_AGAIN_AFTER: Duration = MINUTE;

/// Where the grants of all services of a layer come from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    limiter: Limiter,
    policy: WaitingPolicy,
    pub(super) key: Key,
    /// The policy's own by default.
    pub(super) cost: Option<u64>,
    /// How far ahead of time permits are taken; without a bound by default.
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
        // A newcomer reaches less far ahead than those who were refused before. Otherwise one that
        // arrives at the right moment, such as a caller that was just served, would overtake them
        // each time.
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

    /// How long until a refused caller may be let in.
    fn refused(&self, denied: &Denied) -> Duration {
        let wait = denied.decision().map_or(Duration::ZERO, Decision::delay);
        match self.max_wait {
            Some(longest) if !wait.is_zero() => wait.saturating_sub(longest),
            // A store of the user's own may deny and tell no wait. It must not be asked in a loop
            // without a pause.
            _ => match denied.retry_after() {
                Some(told) if !told.is_zero() => told,
                _ => SECOND,
            },
        }
    }

    /// How much later to ask again, so that waiting callers do not all ask at the same instant.
    /// Chance decides who is next: in order of arrival it would always be one that is about to give
    /// up and leave its place behind.
    ///
    /// Up to half of `max_wait`, which is how early a place can be taken. So no permit goes unused,
    /// and no newcomer reaches it first.
    fn jittered(&self) -> Duration {
        let Some(longest) = self.max_wait else {
            return Duration::ZERO;
        };
        let half = (longest.min(ASKED_AGAIN_AFTER) / 2).as_nanos() as u64;
        Duration::from_nanos(random() % half)
    }
}

/// The permits for one request. Dropped before they are used, they are given back.
pub(super) enum Grant {
    /// Not asked for yet.
    None,
    /// Asked for, or waited for.
    Coming(Coming),
    /// There.
    Here(Box<Permit>),
}

impl Grant {
    /// Asks for the permits. Ready when they are there.
    pub(super) fn poll_here(&mut self, source: &Arc<Source>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Here(_) = self {
            return Poll::Ready(());
        }
        // Out of reach of the next poll if it panics: then it is asked for anew.
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

    /// Uses the permits. Returns `false` if they are not there.
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

/// Permits that are asked for or waited for.
pub(super) struct Coming {
    /// The mutex is never locked: it makes the service `Sync`, which this future is not.
    permit: Mutex<Pin<Box<dyn Future<Output = Permit> + Send>>>,
    /// The runtime on whose timers they are awaited.
    runtime: Option<Id>,
}

impl Coming {
    fn from(source: &Arc<Source>) -> Self {
        Self {
            permit: Mutex::new(Box::pin(Arc::clone(source).grant())),
            runtime: runtime_here(),
        }
    }

    /// Whether a caller on another runtime gave up waiting. That runtime may be gone or not driven
    /// any more, and then its timers wake nobody.
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
