//! `Attempt`: the connection attempt that all waiting questions share.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::{Instant, timeout};

use super::super::client::pause;
use super::super::health::DOWN_AFTER;
use super::{Failure, Link, LiveConnection, Shared};
use crate::task::is_ending;

impl Shared {
    /// Starts an attempt, unless there is a connection, an attempt, or a pause after one that has
    /// failed: another thread may have been faster.
    pub(super) fn start_connecting(self: &Arc<Self>) {
        let now = Instant::now();
        let mine = self.link.send_if_modified(|link| {
            let is_open = match link {
                Link::Down(failure) => failure.as_ref().is_none_or(|it| it.is_over(now)),
                Link::Connecting | Link::Up(_) => false,
            };
            if is_open {
                *link = Link::Connecting;
            }
            is_open
        });
        if mine {
            let attempt = Attempt(Arc::clone(self));
            self.home.spawn(attempt.connect());
        }
    }
}

/// The only attempt. If it ends without a result because its runtime shut down, the next question
/// tries again.
struct Attempt(Arc<Shared>);

impl Attempt {
    async fn connect(self) {
        let shared = &self.0;
        let (connector, probe) = (Arc::clone(&shared.connector), Arc::clone(&shared.probe));
        let mut connecting = pin!(connector.connect_soon(probe));
        let (start, made) = loop {
            if let Ok(made) = timeout(DOWN_AFTER, &mut connecting).await {
                break made;
            }
            shared.mark_down();
        };
        match made {
            Ok((made, master)) => {
                let live = Arc::new(LiveConnection::new(made, Arc::clone(&shared.probe)));
                shared.round_trips.reset(live.trip());
                self.end(Link::Up(Arc::clone(&live)));
                shared.follow(&live, master);
            }
            // No evidence about the server.
            Err(_) if is_ending(&shared.home) => self.end(Link::Down(None)),
            Err(error) => self.end(Link::Down(Some(Failure {
                until: start + pause(),
                error,
            }))),
        }
    }

    /// Sets its outcome, unless it has one.
    fn end(&self, with: Link) {
        self.0.link.send_if_modified(|link| {
            let is_open = matches!(link, Link::Connecting);
            if is_open {
                *link = with;
            }
            is_open
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.end(Link::Down(None));
    }
}
