//! Replaces the connection to a master by one to its successor while the former still answers.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use tokio::sync::watch;

use super::super::probe::{Made, Probe};
use super::super::sentinel::Master;
use super::{Link, LiveConnection, Shared};
use crate::trace;

impl Shared {
    /// Looks for a successor of the server behind the kept connection, if Sentinels have named it,
    /// for as long as it is kept.
    pub(super) fn follow(self: &Arc<Self>, live: &Arc<LiveConnection>, master: Option<Master>) {
        if let Some(master) = master {
            let following = Following {
                connection: Arc::downgrade(self),
                link: self.link.subscribe(),
                live: Arc::downgrade(live),
                master,
                probe: Arc::clone(&self.probe),
            };
            self.home.spawn(following.run());
        }
    }
}

struct Following {
    connection: Weak<Shared>,
    link: watch::Receiver<Link>,
    /// The connection to this master.
    live: Weak<LiveConnection>,
    master: Master,
    probe: Arc<Probe>,
}

impl Following {
    async fn run(mut self) {
        let Some((made, master)) = self.successor().await else {
            return;
        };
        let Some(connection) = self.connection.upgrade() else {
            return;
        };
        let successor = Arc::new(LiveConnection::new(made, Arc::clone(&self.probe)));
        // Questions in flight over the former connection still get their answers there.
        let replaced = connection.link.send_if_modified(|link| {
            let is_kept = is_kept(&self.live, link);
            if is_kept {
                *link = Link::Up(Arc::clone(&successor));
                // It is another server.
                connection.round_trips.reset(successor.trip());
            }
            is_kept
        });
        if replaced {
            let former = &self.master;
            trace::info!(master = %master, former = %former, "Sentinel has named another master");
            connection.follow(&successor, Some(master));
        }
    }

    /// A connection to the successor; `None` if the connection is lost or the store dropped before
    /// there is one.
    async fn successor(&mut self) -> Option<(Made, Master)> {
        let live = &self.live;
        let mut is_over = pin!(self.link.wait_for(|link| !is_kept(live, link)));
        let mut successor = pin!(self.master.successor(&self.probe));
        poll_fn(|cx| match is_over.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => successor.as_mut().poll(cx),
        })
        .await
    }
}

fn is_kept(live: &Weak<LiveConnection>, link: &Link) -> bool {
    matches!(link, Link::Up(kept) if Weak::ptr_eq(live, &Arc::downgrade(kept)))
}
