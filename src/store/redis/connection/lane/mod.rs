//! A lane: one held connection that all questions share, pipelined, and what happens when it
//! breaks.
//!
//! No question checks a connection out, and none waits for a timer: the client writes what there
//! is to write. A connection is made by a task of its own, so that one that takes longer than a
//! decision may is still made; questions wait for it only as long as their deadline lets them. One
//! that is lost is made anew at once.

use std::sync::Arc;

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::connect::{CONNECT_TIMEOUT, Connector, RECONNECT_PAUSE, pause};
use super::held::Held;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::claim::Claim;
use crate::store::duty::Duty;
use crate::store::redis::error::{
    is_connection_lost, is_demoted, is_no_answer, of_lost_connection, of_question,
};
use crate::store::redis::script::Scripted;

mod attempt;
mod doubt;
mod failed;
mod recovery;
mod rouse;
#[cfg(test)]
mod tests;

use doubt::Doubt;
pub(in crate::store::redis) use failed::Failed;

/// Clones share the connection.
#[derive(Clone)]
pub(in crate::store::redis) struct Lane(Arc<Shared>);

struct Shared {
    connector: Arc<Connector>,
    link: watch::Sender<Link>,
    /// Whether somebody sees to it for a question that is to come.
    roused: Duty,
    /// Of a node of a cluster.
    doubt: Option<Arc<Doubt>>,
}

/// The state of the held connection.
#[derive(Clone)]
enum Link {
    /// None, and none on its way; since the last failure, if questions are to wait after it.
    Down(Option<Failure>),
    Connecting(Claim<Instant>),
    Up(Arc<Held>),
}

#[derive(Clone)]
struct Failure {
    /// Until then questions fail at once, and nobody connects.
    until: Instant,
    error: StoreError,
}

impl Lane {
    /// To a single server.
    pub(in crate::store::redis) fn new(connector: Connector) -> Self {
        Self::with(connector, None)
    }

    /// To a node of a cluster, which may go silent by itself.
    pub(in crate::store::redis) fn to_node(connector: Connector) -> Self {
        Self::with(connector, Some(Arc::default()))
    }

    fn with(connector: Connector, doubt: Option<Arc<Doubt>>) -> Self {
        Self(Arc::new(Shared {
            connector: Arc::new(connector),
            link: watch::Sender::new(Link::Down(None)),
            roused: Duty::default(),
            doubt,
        }))
    }

    /// Makes sure that there is a connection, and tries this on it, with a start-up's patience.
    pub(in crate::store::redis) async fn try_out(
        &self,
        question: &impl Scripted,
    ) -> Result<Value, Failed> {
        let held = self.0.held().await?;
        let is_node = self.0.doubt.is_some();
        let tried = held.try_out(question, is_node);
        match tokio::time::timeout(CONNECT_TIMEOUT, tried).await {
            Ok(reply) => reply.map_err(|error| {
                self.0.lose_if_lost(&held, &error);
                Failed::Answer(error)
            }),
            Err(elapsed) => Err(StoreError::with_source(StoreErrorKind::TimedOut, elapsed).into()),
        }
    }

    /// Sends a question. The future may be dropped at any time; the server may count the question
    /// all the same.
    pub(in crate::store::redis) async fn send(
        &self,
        question: &impl Scripted,
    ) -> Result<Value, Failed> {
        match self.0.ask(question, false).await {
            // Nothing ran, and its successor may be known already. Once: a server that was just
            // connected to is not left again before the pause is over.
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

    /// Sends a command that is no question.
    pub(in crate::store::redis) async fn command(&self, command: Cmd) -> Result<Value, StoreError> {
        let held = self.0.held().await?;
        held.command(&command).await.map_err(|error| {
            self.0.lose_if_lost(&held, &error);
            of_question(error)
        })
    }
}

impl Shared {
    async fn ask(
        self: &Arc<Self>,
        question: &impl Scripted,
        is_asking: bool,
    ) -> Result<Value, Failed> {
        if let Some(doubt) = &self.doubt {
            doubt.fail_if_silent()?;
        }
        let held = match self.live() {
            Some(held) => held,
            None => Box::pin(self.woken()).await.map_err(Failed::NotAsked)?,
        };
        held.listen_if_given_up();
        let reply = held.ask(question, is_asking).await;
        self.heard(&held, &reply);
        reply.map_err(
            |error| match is_no_answer(&error) && held.is_lost_with_its_runtime() {
                true => Failed::WithItsRuntime(error),
                false => Failed::Answer(error),
            },
        )
    }

    /// The server has answered, unless its connection was lost.
    fn heard<T>(self: &Arc<Self>, held: &Arc<Held>, reply: &RedisResult<T>) {
        let lost = |error| self.lose_if_lost(held, error);
        let is_lost = reply.as_ref().is_err_and(lost);
        if let (false, Some(doubt)) = (is_lost, &self.doubt) {
            doubt.end();
        }
    }

    fn lose_if_lost(self: &Arc<Self>, held: &Arc<Held>, error: &RedisError) -> bool {
        let is_lost = is_connection_lost(error);
        if is_lost {
            self.give_up(held, of_lost_connection(error.clone()));
        }
        is_lost
    }

    /// The server has not answered for longer than servers do that work.
    fn doubt(self: &Arc<Self>) {
        if let Some(doubt) = &self.doubt {
            doubt.begin(Lane(Arc::clone(self)));
        }
    }

    /// The held connection, as far as it is known to be of use.
    fn live(&self) -> Option<Arc<Held>> {
        let held = match &*self.link.borrow() {
            Link::Up(held) => Arc::clone(held),
            Link::Down(_) | Link::Connecting(_) => return None,
        };
        held.is_lively().then_some(held)
    }

    /// The held connection, once one that was idle has shown that it is not closed.
    async fn woken(self: &Arc<Self>) -> Result<Arc<Held>, StoreError> {
        loop {
            let held = self.held().await?;
            if !held.is_idle() {
                return Ok(held);
            }
            if let Some(beat) = held.wake().await {
                self.heard(&held, &beat);
            }
        }
    }

    /// The held connection; makes one when there is none, or none that is served by whom it should be.
    async fn held(self: &Arc<Self>) -> Result<Arc<Held>, StoreError> {
        let mut link = self.link.subscribe();
        let mut has_begun = false;
        loop {
            let current = link.borrow_and_update().clone();
            match current {
                // Whatever became of it says nothing of the server.
                Link::Up(held) if !held.is_well_served() => self.let_go(&held, None),
                Link::Up(held) if held.is_dead() => {
                    // That one could not be woken says nothing of the server: the new one tells.
                    if held.has_gone_silent() {
                        self.doubt();
                    }
                    self.give_up(&held, StoreError::new(StoreErrorKind::Unreachable));
                }
                // Nothing was asked over it since.
                Link::Up(held) if held.is_closed() => {
                    self.give_up(&held, StoreError::new(StoreErrorKind::Unreachable));
                }
                Link::Up(held) => return Ok(held),
                Link::Down(Some(failure)) if Instant::now() < failure.until => {
                    return Err(failure.error);
                }
                // The sender lives as long as `self`, so there always is a next state.
                Link::Connecting(attempt) if !attempt.has_lapsed(Instant::now()) => {
                    let _ = timeout_at(attempt.end(), link.changed()).await;
                }
                // The runtime is being shut down: it would be begun, and ended, without end.
                Link::Down(None) if has_begun => {
                    return Err(StoreError::new(StoreErrorKind::Unreachable));
                }
                Link::Connecting(_) | Link::Down(_) => {
                    self.start_connecting();
                    has_begun = true;
                }
            }
        }
    }

    /// Lets go of a connection that is of no use any more.
    fn give_up(self: &Arc<Self>, lost: &Arc<Held>, why: StoreError) {
        // A server that takes every connection and serves none is not to be asked for a new one by
        // every question. That one was lost with its runtime says nothing of the server.
        let is_servers = lost.age() < RECONNECT_PAUSE && !lost.is_lost_with_its_runtime();
        let failure = is_servers.then(|| Failure {
            until: Instant::now() + pause(),
            error: why,
        });
        self.let_go(lost, failure);
    }

    /// Lets go of a connection, unless another one has taken its place already, and begins to make one,
    /// unless that is to wait.
    fn let_go(self: &Arc<Self>, lost: &Arc<Held>, failure: Option<Failure>) {
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
