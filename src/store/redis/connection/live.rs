//! A kept connection: what is sent over it, and what shows whether it works.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};

use super::credentials::LoggedIn;
use super::health::{DOWN_AFTER, Health};
use super::probe::{Made, Probe};
use crate::store::redis::error::{is_demoted, is_no_answer, is_no_script};
use crate::store::redis::script::Scripted;

pub(super) struct LiveConnection {
    connection: MultiplexedConnection,
    health: Health,
    probe: Arc<Probe>,
    /// Whether a task probes it beside the questions.
    pub(super) is_being_probed: AtomicBool,
    /// Keeps it logged in with credentials that may change.
    _logged_in: Option<LoggedIn>,
}

impl LiveConnection {
    pub(super) fn new(made: Made, probe: Arc<Probe>) -> Self {
        Self {
            connection: made.connection,
            health: Health::new(made.trip),
            probe,
            is_being_probed: AtomicBool::new(false),
            _logged_in: made.logged_in,
        }
    }

    /// How long its first answer took.
    pub(super) fn trip(&self) -> Duration {
        self.health.trip()
    }

    /// Its age.
    pub(super) fn age(&self) -> Duration {
        self.health.age()
    }

    /// Sends EVALSHA, and then EVAL if the server does not know the script and so has run nothing.
    /// Nothing else is sent twice, because it may have run.
    ///
    /// With `is_asking`, a node of a cluster is asked about a slot that it is still taking over.
    pub(super) async fn ask(
        &self,
        question: &impl Scripted,
        is_asking: bool,
    ) -> RedisResult<Value> {
        let asked = self.health.asked();
        let command = question.by_digest();
        // The rare case is boxed, as every question's future would otherwise need room for it.
        let mut reply = match is_asking {
            false => self.command(&command).await,
            true => Box::pin(self.asking(command)).await,
        };
        if reply.as_ref().is_err_and(is_no_script) {
            reply = Box::pin(self.run(question.with_text(), is_asking)).await;
        }
        if !reply.as_ref().is_err_and(is_no_answer) {
            asked.answered();
        }
        reply
    }

    /// Sends EVAL and EVALSHA, with `is_asking` after ASKING, since each needs its own permission.
    /// Returns the answer to EVALSHA or, if the server forgot the script in between, to EVAL.
    pub(super) async fn try_out(
        &self,
        question: &impl Scripted,
        is_asking: bool,
    ) -> RedisResult<Value> {
        if !is_asking {
            let by_text = self.command(&question.with_text()).await?;
            let by_digest = self.command(&question.by_digest()).await;
            return unless_forgotten(by_digest, by_text);
        }
        // ASKING changes nothing if the slot is not moving.
        let [asking, reply] = self.with_asking(question.with_text()).await?;
        let by_text = match asking {
            Err(refused) if refused.code() == Some("NOPERM") => return Err(refused),
            // A server that does not know ASKING may be one that never redirects so.
            _ => reply?,
        };
        let [_, by_digest] = self.with_asking(question.by_digest()).await?;
        unless_forgotten(by_digest, by_text)
    }

    async fn run(&self, command: Cmd, is_asking: bool) -> RedisResult<Value> {
        match is_asking {
            false => self.command(&command).await,
            true => self.asking(command).await,
        }
    }

    async fn asking(&self, command: Cmd) -> RedisResult<Value> {
        match self.with_asking(command).await? {
            // A redirection back to the node that the slot moves from, which would redirect it here again.
            [Err(refused), Err(error)] if error.redirect_node().is_some() => Err(refused),
            [_, reply] => reply,
        }
    }

    /// The replies to ASKING and to the command.
    async fn with_asking(&self, command: Cmd) -> RedisResult<[RedisResult<Value>; 2]> {
        // Written in one piece, so that no other question comes between.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command);
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(&both, 0, 2).await?;
        let mut replies = replies.into_iter().map(read);
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        Ok([next(), next()])
    }

    pub(super) async fn command(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        read(connection.send_packed_command(command).await?)
    }

    /// Asks whether the server answers. If this is dropped before the answer, that does not count
    /// against the connection.
    pub(super) async fn probe(&self) -> RedisResult<()> {
        let answer = self.command(&self.probe.script()).await;
        // An error from the server is an answer, too.
        if !answer.as_ref().is_err_and(is_no_answer) {
            self.health.answered();
        }
        answer.map(drop)
    }

    /// The same, but it counts like a question.
    pub(super) async fn probe_as_question(&self) -> RedisResult<()> {
        let asked = self.health.asked();
        let answer = self.probe().await;
        if !answer.as_ref().is_err_and(is_no_answer) {
            asked.answered();
        }
        answer
    }

    /// Probes an idle connection whose answer to a question is late. Returns the answer, or `None` if
    /// a question is answered or given up first.
    pub(super) async fn reassure(&self) -> Option<RedisResult<()>> {
        let mut others = pin!(self.health.news());
        let mut own = pin!(self.probe_as_question());
        poll_fn(|cx| match others.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => own.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// Whether there is no evidence against it.
    pub(super) fn is_lively(&self) -> bool {
        !self.is_dead() && !self.is_idle() && !self.is_closed()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.health.is_dead()
    }

    /// Whether the client knows that it was closed since the last answer; then it refuses commands at
    /// once. A command that it accepts is dropped before it is sent, and does nothing if another
    /// thread sends it nevertheless.
    pub(super) fn is_closed(&self) -> bool {
        if !self.health.is_quiet() {
            return false;
        }
        let mut connection = self.connection.clone();
        let nothing = self.probe.script();
        let mut taken = pin!(connection.send_packed_command(&nothing));
        let taken = taken.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        matches!(taken, Poll::Ready(Err(_)))
    }

    /// Whether its server has not answered for as long as it is waited for.
    pub(super) fn has_gone_silent(&self) -> bool {
        self.health.has_gone_silent()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.health.is_idle()
    }

    /// Whether it is idle, and the answer to a question over it is late.
    pub(super) fn is_late(&self) -> bool {
        self.health.is_late()
    }

    /// How long an answer to a probe is awaited.
    pub(super) fn patience(&self) -> Duration {
        DOWN_AFTER.max(self.health.patience())
    }

    /// Whether questions were given up since the last answer.
    pub(super) fn has_unanswered(&self) -> bool {
        self.health.has_unanswered()
    }
}

fn unless_forgotten(by_digest: RedisResult<Value>, by_text: Value) -> RedisResult<Value> {
    match by_digest {
        Err(error) if is_no_script(&error) => Ok(by_text),
        reply => reply,
    }
}

fn read(reply: Value) -> RedisResult<Value> {
    match reply {
        Value::ServerError(error) => Err(error.into()),
        Value::Array(parts) => of_parts(parts),
        reply => Ok(reply),
    }
}

/// An error among the replies concerns its part. Only the error of a demoted server concerns the
/// connection.
fn of_parts(parts: Vec<Value>) -> RedisResult<Value> {
    let errors = parts.iter().filter_map(|part| match part {
        Value::ServerError(error) => Some(RedisError::from(error.clone())),
        _ => None,
    });
    match errors.into_iter().find(is_demoted) {
        Some(error) => Err(error),
        None => Ok(Value::Array(parts)),
    }
}
