//! `Grant`: the permits for one request, from the question for them until they are used.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::error::CheckError;
use crate::key::Key;
use crate::limiter::{Held, Limiter, Waitable};
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
}

impl Source {
    pub(super) fn new(limiter: Limiter, policy: &str) -> Result<Self, CheckError> {
        Ok(Self {
            policy: limiter.waitable(policy)?,
            limiter,
            key: Key::everybody(),
            cost: None,
        })
    }

    /// The permits for one request, as soon as they are there. One trip, unless they are refused:
    /// by a store that fails, by a ban, because they would take years, or by a limit that nobody can wait
    /// for, which has taken the place of one that could be.
    async fn grant(self: Arc<Self>) -> Held {
        loop {
            let reserving = self.limiter.reserve(&self.policy, &self.key, self.cost);
            let held = reserving.await;
            if held.is_allowed() {
                return held;
            }
            let refused = held.decision().retry_after().unwrap_or(SECOND);
            drop(held);
            self.limiter.delay(refused.min(ASKED_AGAIN_AFTER)).await;
        }
    }
}

/// The permits for one request. Dropped before they are used, they are given back.
pub(super) enum Grant {
    /// Not asked for yet.
    None,
    /// On their way. The lock is never taken: it makes the service one that can be shared, which
    /// this future is not.
    Coming(Mutex<Coming>),
    /// There.
    Here(Box<Held>),
}

type Coming = Pin<Box<dyn Future<Output = Held> + Send>>;

impl Grant {
    /// Asks for the permits, and is ready when they are there.
    pub(super) fn poll_here(&mut self, source: &Arc<Source>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            *self = match self {
                Self::None => Self::Coming(Mutex::new(Box::pin(Arc::clone(source).grant()))),
                Self::Coming(coming) => {
                    let coming = coming.get_mut().unwrap_or_else(PoisonError::into_inner);
                    Self::Here(Box::new(ready!(coming.as_mut().poll(cx))))
                }
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
