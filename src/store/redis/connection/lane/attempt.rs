//! `Attempt`: the connection attempt that all waiting questions share.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::super::connect::{CONNECT_TIMEOUT, RECONNECT_PAUSE, pause};
use super::super::signs::LONGEST_SILENCE;
use super::{Failure, Held, Link, Shared};
use crate::store::claim::{Claim, Number};
use crate::store::redis::runtimes::has_failed_with_its_runtime;

/// After this time an attempt has ended, if it is driven at all.
const ATTEMPT: Duration = CONNECT_TIMEOUT.saturating_add(RECONNECT_PAUSE);

impl Shared {
    /// Starts an attempt, unless there is a connection, an attempt that makes progress, or a pause
    /// after one that has failed: another thread may have been faster.
    pub(super) fn start_connecting(self: &Arc<Self>) {
        let now = Instant::now();
        let claim = Claim::until(now + ATTEMPT);
        let mine = self.link.send_if_modified(|link| {
            let is_open = match link {
                Link::Down(failure) => failure.as_ref().is_none_or(|it| it.is_over(now)),
                Link::Connecting(attempt) => attempt.has_lapsed(now),
                Link::Up(_) => false,
            };
            if is_open {
                *link = Link::Connecting(claim);
            }
            is_open
        });
        if mine {
            let attempt = Attempt {
                shared: Arc::clone(self),
                number: claim.number(),
            };
            tokio::spawn(attempt.connect());
        }
    }
}

/// An attempt. If it ends without a result because its runtime shut down, the next question tries
/// again.
struct Attempt {
    shared: Arc<Shared>,
    number: Number,
}

impl Attempt {
    async fn connect(self) {
        let (connector, probe) = (&self.shared.connector, &self.shared.probe);
        let mut connecting = pin!(Arc::clone(connector).connect_soon(Arc::clone(probe)));
        let (begun, made) = loop {
            if let Ok(made) = timeout(LONGEST_SILENCE, &mut connecting).await {
                break made;
            }
            if self.is_awaited() {
                self.shared.begin_silence();
            }
        };
        match made {
            Ok(mut made) => {
                let master = made.master.take();
                let held = Arc::new(Held::new(made, Arc::clone(probe)));
                self.end(Link::Up(Arc::clone(&held)));
                self.shared.follow(&held, master);
            }
            // That says nothing about the server: whoever waits connects on a runtime of their own.
            Err(_) if has_failed_with_its_runtime().await => self.end(Link::Down(None)),
            Err(error) => self.end(Link::Down(Some(Failure {
                until: begun + pause(),
                error,
            }))),
        }
    }

    /// Whether no other attempt has replaced it.
    fn is_awaited(&self) -> bool {
        self.is_in(&self.shared.link.borrow())
    }

    fn is_in(&self, link: &Link) -> bool {
        matches!(link, Link::Connecting(attempt) if attempt.is(self.number))
    }

    /// Sets its outcome, unless it is over or another attempt has replaced it.
    fn end(&self, with: Link) {
        self.shared.link.send_if_modified(|link| {
            let is_in = self.is_in(link);
            if is_in {
                *link = with;
            }
            is_in
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.end(Link::Down(None));
    }
}
