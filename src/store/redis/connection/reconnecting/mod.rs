//! A connection: one kept connection that all questions share, pipelined, and its recovery when it
//! breaks.
//!
//! Questions neither check out a connection nor wait for a timer: the client writes what is ready. A
//! task makes the connection, so that it is made even if that takes longer than a decision; questions
//! wait for it until their deadline. A lost connection is replaced at once.
//!
//! A connection belongs to one runtime, which drives its connection and runs all of its tasks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::client::{CONNECT_TIMEOUT, RECONNECT_PAUSE, pause};
use super::connect::Connector;
use super::live::LiveConnection;
use super::probe::Probe;
use super::round_trips::RoundTrips;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{
    is_connection_lost, is_demoted, is_no_answer, of_lost_connection, of_script_not_run,
};
use crate::store::redis::keys::Prefix;
use crate::store::redis::script::Scripted;
use crate::task::is_ending;
use node_down::NodeDown;

mod attempt;
mod beside;
mod failed;
mod following;
mod node_down;
mod recovery;

pub(in crate::store::redis) use failed::Failed;

/// Clones share the connection.
#[derive(Clone)]
pub(in crate::store::redis) struct ReconnectingConnection(Arc<Shared>);

struct Shared {
    connector: Arc<Connector>,
    probe: Arc<Probe>,
    link: watch::Sender<Link>,
    /// Where everything of this connection runs.
    home: Handle,
    /// Whether a task prepares the connection for a question to come.
    is_warming_up: AtomicBool,
    /// Over the current connection.
    round_trips: RoundTrips,
    /// For a node of a cluster.
    node_down: Option<Arc<NodeDown>>,
}

/// The state of the kept connection.
#[derive(Clone)]
enum Link {
    /// There is no connection, and none is being made; with the last failure, if questions have to
    /// wait after it.
    Down(Option<Failure>),
    Connecting,
    Up(Arc<LiveConnection>),
}

#[derive(Clone)]
struct Failure {
    /// Until then questions fail at once, and no connection is made.
    until: Instant,
    error: StoreError,
}

impl Failure {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }
}

impl ReconnectingConnection {
    /// A connection to a single server, for keys with this prefix, on this runtime.
    pub(in crate::store::redis) fn new(
        connector: Connector,
        prefix: Prefix,
        home: &Handle,
    ) -> Self {
        Self::with(connector, prefix, home, None)
    }

    /// A connection to a node of a cluster, which may go down while other nodes answer.
    pub(in crate::store::redis) fn to_node(
        connector: Connector,
        prefix: Prefix,
        home: &Handle,
    ) -> Self {
        Self::with(connector, prefix, home, Some(Arc::default()))
    }

    fn with(
        connector: Connector,
        prefix: Prefix,
        home: &Handle,
        node_down: Option<Arc<NodeDown>>,
    ) -> Self {
        Self(Arc::new(Shared {
            connector: Arc::new(connector),
            probe: Arc::new(Probe::new(prefix)),
            link: watch::Sender::new(Link::Down(None)),
            home: home.clone(),
            is_warming_up: AtomicBool::new(false),
            round_trips: RoundTrips::default(),
            node_down,
        }))
    }

    /// Makes sure that there is a connection, and tries this question on it, with the long timeout
    /// of a start-up; with `is_asking`, as it is asked while its slot moves.
    pub(in crate::store::redis) async fn try_out(
        &self,
        question: &impl Scripted,
        is_asking: bool,
    ) -> Result<Value, Failed> {
        let live = self.0.connected().await?;
        let tried = live.try_out(question, is_asking);
        match tokio::time::timeout(CONNECT_TIMEOUT, tried).await {
            Ok(reply) => reply.map_err(|error| {
                self.0.lose_if_lost(&live, &error);
                Failed::Answer(error)
            }),
            Err(elapsed) => Err(of_script_not_run(elapsed).into()),
        }
    }

    /// Sends a question. The future may be dropped at any time; the server may count the question
    /// nevertheless.
    pub(in crate::store::redis) async fn send(
        &self,
        question: &impl Scripted,
    ) -> Result<Value, Failed> {
        match self.0.ask(question, false).await {
            // Nothing ran, and the new master may be known already. Tried once, as a new connection
            // is kept until the pause is over.
            Err(Failed::Answer(error)) if is_demoted(&error) => {
                Box::pin(self.0.ask(question, false)).await
            }
            answer => answer,
        }
    }

    /// Sends a question to a node of a cluster, once.
    pub(in crate::store::redis) async fn ask(
        &self,
        question: &impl Scripted,
        is_asking: bool,
    ) -> Result<Value, Failed> {
        self.0.ask(question, is_asking).await
    }

    /// The node has the slot of this tag, so that it answers a probe about it.
    pub(in crate::store::redis) fn probe_with_tag(&self, tag: String) {
        self.0.probe.set_tag(tag);
    }

    /// The round trips over the current connection.
    pub(in crate::store::redis) fn round_trips(&self) -> &RoundTrips {
        &self.0.round_trips
    }

    /// The error with the server's name.
    pub(in crate::store::redis) fn naming(&self, error: StoreError) -> StoreError {
        self.0.connector.naming(error)
    }

    /// Sends a command that is not a question, and so counts nothing.
    pub(in crate::store::redis) async fn command(&self, command: Cmd) -> Result<Value, Failed> {
        let live = self.0.connected().await?;
        live.command(&command).await.map_err(|error| {
            self.0.lose_if_lost(&live, &error);
            Failed::Answer(error)
        })
    }
}

impl Shared {
    async fn ask(
        self: &Arc<Self>,
        question: &impl Scripted,
        is_asking: bool,
    ) -> Result<Value, Failed> {
        if let Some(node_down) = &self.node_down {
            node_down.fail_if_down()?;
        }
        let live = match self.live() {
            Some(live) => live,
            None => Box::pin(self.usable()).await.map_err(Failed::NotAsked)?,
        };
        if live.has_unanswered() {
            self.probe_beside(&live);
        }
        let reply = live.ask(question, is_asking).await;
        self.note_answer(&live, &reply);
        reply.map_err(
            |error| match is_no_answer(&error) && is_ending(&self.home) {
                true => Failed::WithItsRuntime(error),
                false => Failed::Answer(error),
            },
        )
    }

    /// Records that the server has answered, unless its connection was lost.
    fn note_answer<T>(self: &Arc<Self>, live: &Arc<LiveConnection>, reply: &RedisResult<T>) {
        let reply = reply.as_ref();
        let is_lost = reply.is_err_and(|error| self.lose_if_lost(live, error));
        if let (false, Some(node_down)) = (is_lost, &self.node_down) {
            node_down.end();
        }
    }

    fn lose_if_lost(self: &Arc<Self>, live: &Arc<LiveConnection>, error: &RedisError) -> bool {
        let is_lost = is_connection_lost(error);
        if is_lost {
            self.give_up(live, of_lost_connection(error.clone()));
        }
        is_lost
    }

    /// Records that the server has not answered for longer than a working server takes.
    fn mark_down(self: &Arc<Self>) {
        let node_down = self.node_down.as_ref();
        if let Some(check) = node_down.and_then(|node_down| node_down.begin()) {
            let connection = ReconnectingConnection(Arc::clone(self));
            let recovered = move |within| connection.clone().recovered(within);
            self.home.spawn(check.run(recovered));
        }
    }

    /// The kept connection, if there is no evidence against it.
    fn live(&self) -> Option<Arc<LiveConnection>> {
        let live = match &*self.link.borrow() {
            Link::Up(live) => Arc::clone(live),
            Link::Down(_) | Link::Connecting => return None,
        };
        live.is_lively().then_some(live)
    }

    /// The kept connection, once a question may use it. That is at once, even if it was idle, unless
    /// the answer to an earlier question is late: a connection that was silently dropped should cost
    /// as few questions as possible.
    async fn usable(self: &Arc<Self>) -> Result<Arc<LiveConnection>, StoreError> {
        if self.connected().await?.is_idle() {
            // Lets the runtime read what has arrived: perhaps that the connection is closed.
            yield_now().await;
        }
        loop {
            let live = self.connected().await?;
            if live.is_idle() {
                self.probe_beside(&live);
            }
            if !live.is_late() {
                return Ok(live);
            }
            if let Some(answer) = live.reassure().await {
                self.note_answer(&live, &answer);
            }
        }
    }

    /// The kept connection. Makes one if there is none.
    async fn connected(self: &Arc<Self>) -> Result<Arc<LiveConnection>, StoreError> {
        let mut link = self.link.subscribe();
        loop {
            let current = link.borrow_and_update().clone();
            match current {
                Link::Up(live) if live.is_dead() => {
                    // An idle connection is no evidence about the server; the new one will be.
                    if live.has_gone_silent() {
                        self.mark_down();
                    }
                    self.give_up(&live, StoreError::new(StoreErrorKind::Unreachable));
                }
                // Nothing was asked over it since it closed.
                Link::Up(live) if live.is_closed() => {
                    self.give_up(&live, StoreError::new(StoreErrorKind::Unreachable));
                }
                Link::Up(live) => return Ok(live),
                Link::Down(Some(failure)) if !failure.is_over(Instant::now()) => {
                    return Err(failure.error);
                }
                // The sender lives as long as `self`, so there always is a next state.
                Link::Connecting => drop(link.changed().await),
                Link::Down(_) => {
                    self.start_connecting();
                    // Its task is gone already: connecting would start and end again for ever.
                    if matches!(*self.link.borrow(), Link::Down(None)) && is_ending(&self.home) {
                        let error = StoreError::new(StoreErrorKind::Unreachable);
                        return Err(error.of_this_process());
                    }
                }
            }
        }
    }

    /// Drops a connection that no longer works.
    fn give_up(self: &Arc<Self>, lost: &Arc<LiveConnection>, why: StoreError) {
        // If a server accepts connections but serves none, not every question may cause a new one.
        // A connection that was lost with its runtime is no evidence about the server.
        let is_servers = lost.age() < RECONNECT_PAUSE && !is_ending(&self.home);
        let failure = is_servers.then(|| Failure {
            until: Instant::now() + pause(),
            error: why,
        });
        self.drop_link(lost, failure);
    }

    /// Drops a connection, unless another one has replaced it already, and starts making one,
    /// unless a pause is due.
    fn drop_link(self: &Arc<Self>, lost: &Arc<LiveConnection>, failure: Option<Failure>) {
        let is_to_wait = failure.is_some();
        let mine = self.link.send_if_modified(|link| {
            let live = matches!(link, Link::Up(live) if Arc::ptr_eq(live, lost));
            if live {
                *link = Link::Down(failure);
            }
            live
        });
        if mine && !is_to_wait {
            self.start_connecting();
        }
    }
}

#[cfg(test)]
mod tests;
