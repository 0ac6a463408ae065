//! A connection: one kept connection that all questions share, pipelined, and its recovery when it
//! breaks.
//!
//! No question checks out a connection, and none waits for a timer: the client writes what is
//! ready. A task of its own makes the connection, so that a connection that takes longer than a
//! decision is still made; questions wait for it only until their deadline. A lost connection is
//! replaced at once.
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
use super::held::Held;
use super::probe::Probe;
use super::round_trips::RoundTrips;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{
    is_connection_lost, is_demoted, is_no_answer, of_lost_connection, of_script_not_run,
};
use crate::store::redis::keys::Prefix;
use crate::store::redis::script::Scripted;
use crate::store::spawn::is_ending;

mod attempt;
mod beside;
mod failed;
mod following;
mod recovery;
mod silence;
#[cfg(test)]
mod tests;
mod warm_up;

pub(in crate::store::redis) use failed::Failed;
use silence::Silence;

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
    silence: Option<Arc<Silence>>,
}

/// The state of the kept connection.
#[derive(Clone)]
enum Link {
    /// There is no connection, and none is being made; with the last failure, if questions have to
    /// wait after it.
    Down(Option<Failure>),
    Connecting,
    Up(Arc<Held>),
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

    /// A connection to a node of a cluster, which may go silent by itself.
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
        silence: Option<Arc<Silence>>,
    ) -> Self {
        Self(Arc::new(Shared {
            connector: Arc::new(connector),
            probe: Arc::new(Probe::new(prefix)),
            link: watch::Sender::new(Link::Down(None)),
            home: home.clone(),
            is_warming_up: AtomicBool::new(false),
            round_trips: RoundTrips::default(),
            silence,
        }))
    }

    /// Makes sure that there is a connection, and tries this question on it, with the long timeout
    /// of a start-up; with `is_asking`, as it is asked while its slot moves.
    pub(in crate::store::redis) async fn try_out(
        &self,
        question: &impl Scripted,
        is_asking: bool,
    ) -> Result<Value, Failed> {
        let held = self.0.held().await?;
        let tried = held.try_out(question, is_asking);
        match tokio::time::timeout(CONNECT_TIMEOUT, tried).await {
            Ok(reply) => reply.map_err(|error| {
                self.0.lose_if_lost(&held, &error);
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
            // Nothing ran, and the new master may be known already. Tried once: a connection that
            // was just made is not left again before the pause is over.
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

    /// What the answers over the current connection tell of its server.
    pub(in crate::store::redis) fn round_trips(&self) -> &RoundTrips {
        &self.0.round_trips
    }

    /// The error with the server's name.
    pub(in crate::store::redis) fn naming(&self, error: StoreError) -> StoreError {
        self.0.connector.naming(error)
    }

    /// Sends a command that is not a question, and so counts nothing.
    pub(in crate::store::redis) async fn command(&self, command: Cmd) -> Result<Value, Failed> {
        let held = self.0.held().await?;
        held.command(&command).await.map_err(|error| {
            self.0.lose_if_lost(&held, &error);
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
        if let Some(silence) = &self.silence {
            silence.fail_if_silent()?;
        }
        let held = match self.live() {
            Some(held) => held,
            None => Box::pin(self.usable()).await.map_err(Failed::NotAsked)?,
        };
        if held.has_unanswered() {
            self.probe_beside(&held);
        }
        let reply = held.ask(question, is_asking).await;
        self.heard(&held, &reply);
        reply.map_err(
            |error| match is_no_answer(&error) && is_ending(&self.home) {
                true => Failed::WithItsRuntime(error),
                false => Failed::Answer(error),
            },
        )
    }

    /// Records that the server has answered, unless its connection was lost.
    fn heard<T>(self: &Arc<Self>, held: &Arc<Held>, reply: &RedisResult<T>) {
        let lost = |error| self.lose_if_lost(held, error);
        let is_lost = reply.as_ref().is_err_and(lost);
        if let (false, Some(silence)) = (is_lost, &self.silence) {
            silence.end();
        }
    }

    fn lose_if_lost(self: &Arc<Self>, held: &Arc<Held>, error: &RedisError) -> bool {
        let is_lost = is_connection_lost(error);
        if is_lost {
            self.give_up(held, of_lost_connection(error.clone()));
        }
        is_lost
    }

    /// Records that the server has not answered for longer than a working server takes.
    fn begin_silence(self: &Arc<Self>) {
        let silence = self.silence.as_ref();
        if let Some(listening) = silence.and_then(|silence| silence.begin()) {
            let connection = ReconnectingConnection(Arc::clone(self));
            let recovered = move |within| connection.clone().recovered(within);
            self.home.spawn(listening.listen(recovered));
        }
    }

    /// The kept connection, if nothing speaks against it.
    fn live(&self) -> Option<Arc<Held>> {
        let held = match &*self.link.borrow() {
            Link::Up(held) => Arc::clone(held),
            Link::Down(_) | Link::Connecting => return None,
        };
        held.is_lively().then_some(held)
    }

    /// The kept connection, once a question may go over it. That is at once, however long it was
    /// idle, unless the answer to an earlier question is late: a connection that was dropped
    /// silently is to cost as few questions as possible.
    async fn usable(self: &Arc<Self>) -> Result<Arc<Held>, StoreError> {
        if self.held().await?.is_idle() {
            // Lets the runtime read what has arrived: perhaps that the connection is closed.
            yield_now().await;
        }
        loop {
            let held = self.held().await?;
            if held.is_idle() {
                self.probe_beside(&held);
            }
            if !held.is_late() {
                return Ok(held);
            }
            if let Some(answer) = held.reassure().await {
                self.heard(&held, &answer);
            }
        }
    }

    /// The kept connection. Makes one if there is none.
    async fn held(self: &Arc<Self>) -> Result<Arc<Held>, StoreError> {
        let mut link = self.link.subscribe();
        loop {
            let current = link.borrow_and_update().clone();
            match current {
                Link::Up(held) if held.is_dead() => {
                    // One that was idle says nothing about the server: the new one will tell.
                    if held.has_gone_silent() {
                        self.begin_silence();
                    }
                    self.give_up(&held, StoreError::new(StoreErrorKind::Unreachable));
                }
                // Nothing was asked over it since it closed.
                Link::Up(held) if held.is_closed() => {
                    self.give_up(&held, StoreError::new(StoreErrorKind::Unreachable));
                }
                Link::Up(held) => return Ok(held),
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
    fn give_up(self: &Arc<Self>, lost: &Arc<Held>, why: StoreError) {
        // If a server accepts connections but serves none, not every question may ask for a new
        // one. A connection that was lost with its runtime says nothing about the server.
        let is_servers = lost.age() < RECONNECT_PAUSE && !is_ending(&self.home);
        let failure = is_servers.then(|| Failure {
            until: Instant::now() + pause(),
            error: why,
        });
        self.drop_link(lost, failure);
    }

    /// Drops a connection, unless another one has replaced it already, and starts making one,
    /// unless a pause is due.
    fn drop_link(self: &Arc<Self>, lost: &Arc<Held>, failure: Option<Failure>) {
        let is_to_wait = failure.is_some();
        let mine = self.link.send_if_modified(|link| {
            let held = matches!(link, Link::Up(held) if Arc::ptr_eq(held, lost));
            if held {
                *link = Link::Down(failure);
            }
            held
        });
        if mine && !is_to_wait {
            self.start_connecting();
        }
    }
}
