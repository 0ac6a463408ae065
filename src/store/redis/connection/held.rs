//! A kept connection: what is sent over it, how it is woken after it was idle, and who waits for an
//! answer when callers give up.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::signs::{self, LONGEST_SILENCE, Signs};
use crate::store::duty::Duty;
use crate::store::redis::error::{is_demoted, is_no_answer, is_no_script};
use crate::store::redis::runtimes::{Serving, goes_on_by_itself_here};
use crate::store::redis::script::Scripted;

pub(super) struct Held {
    connection: MultiplexedConnection,
    signs: Signs,
    /// Held by the task that waits for an answer after callers have given up.
    listening: Duty,
    /// Whether its runtime makes progress by itself.
    is_always_served: bool,
    served: Serving,
    /// Notified when the script that does nothing has run, or its caller has given up.
    woken: Notify,
}

impl Held {
    /// A connection that was made on the current runtime, which serves it.
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            signs: Signs::new(),
            listening: Duty::default(),
            is_always_served: goes_on_by_itself_here(),
            served: Serving::here(),
            woken: Notify::new(),
        }
    }

    /// Its age.
    pub(super) fn age(&self) -> Duration {
        self.signs.age()
    }

    /// Sends EVALSHA; if the server does not know the script, and so has run nothing, then EVAL.
    /// Nothing else is ever sent twice here, as it cannot be known whether it ran.
    ///
    /// With `is_asking`, a node of a cluster is asked about a slot that it is still taking over.
    pub(super) async fn ask(
        &self,
        question: &impl Scripted,
        is_asking: bool,
    ) -> RedisResult<Value> {
        let asked = self.signs.asked();
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

    /// Sends EVAL and EVALSHA, with ASKING on a node of a cluster, as each needs a right of its
    /// own. Returns the answer to EVALSHA or, if the script was forgotten in between, to EVAL.
    pub(super) async fn try_out(
        &self,
        question: &impl Scripted,
        is_node: bool,
    ) -> RedisResult<Value> {
        if !is_node {
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
            // A redirection back to where the slot moves from, which would send it here again.
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

    /// Runs a script that does nothing.
    pub(super) async fn beat(&self) -> RedisResult<()> {
        let beat = self.command(&doing_nothing()).await;
        // An error from the server is an answer, too.
        if !beat.as_ref().is_err_and(is_no_answer) {
            self.signs.answered();
            self.woken.notify_waiters();
        }
        beat.map(drop)
    }

    /// If questions were given up since the last answer, asks one that nobody gives up. Those
    /// callers may have gone away before there could be an answer: a server that gives this one is
    /// not silent, however many callers do.
    pub(super) fn listen_if_given_up(self: &Arc<Self>) {
        if self.signs.has_unanswered()
            && let Some(turn) = self.listening.begin(LONGEST_SILENCE)
        {
            let held = Arc::clone(self);
            tokio::spawn(async move {
                let _ = timeout(LONGEST_SILENCE, held.beat()).await;
                held.listening.end(&turn);
            });
        }
    }

    /// The same before a question on an idle connection. If it was closed meanwhile, that shows
    /// now, and not with a question of which nobody would know whether it ran.
    ///
    /// Returns what was heard. Callers that come while others wait for that go on with the first of
    /// them, whether these have heard something or given up: `None`. Each asks nevertheless, as the
    /// others' runtimes may not be driven.
    pub(super) async fn wake(&self) -> Option<RedisResult<()>> {
        let _waking = Waking {
            held: self,
            waking: self.signs.waking(),
        };
        let mut others = pin!(self.woken.notified());
        let mut own = pin!(self.beat());
        poll_fn(|cx| match others.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => own.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// Whether it can be used without being woken.
    pub(super) fn is_lively(&self) -> bool {
        self.is_well_served() && !self.is_dead() && !self.is_idle() && !self.is_closed()
    }

    /// Whether its runtime serves it at least as well as the current one would. A runtime that
    /// makes progress only while a thread blocks on it writes and reads nothing until then.
    pub(super) fn is_well_served(&self) -> bool {
        self.is_served() && (self.is_always_served || !goes_on_by_itself_here())
    }

    /// Whether its runtime still exists.
    pub(super) fn is_served(&self) -> bool {
        self.served.is_there()
    }

    /// Whether its runtime is shutting down or gone, so that whatever is sent over it is lost.
    pub(super) fn is_lost_with_its_runtime(&self) -> bool {
        self.served.is_ending()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.signs.is_dead()
    }

    /// Whether the client has seen it closed since the last answer. It then refuses whatever it is
    /// asked at once. A question that it accepts is given up before it is sent; and if another
    /// thread sends it nevertheless, it does nothing.
    pub(super) fn is_closed(&self) -> bool {
        if !self.signs.is_quiet() {
            return false;
        }
        let mut connection = self.connection.clone();
        let nothing = doing_nothing();
        let mut taken = pin!(connection.send_packed_command(&nothing));
        let taken = taken.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        matches!(taken, Poll::Ready(Err(_)))
    }

    /// Whether its server has not answered for as long as it is waited for.
    pub(super) fn has_gone_silent(&self) -> bool {
        self.signs.has_gone_silent()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.signs.is_idle()
    }
}

/// A script rather than PING, which a server answers even while it makes scripts wait.
fn doing_nothing() -> Cmd {
    let mut script = redis::cmd("EVAL");
    script.arg("return 1").arg(0);
    script
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

/// An error among the replies is that of a part. Only the error of a demoted server means that this
/// is no server to ask.
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

/// A connection is being woken. If dropped before an answer, this counts against the connection.
struct Waking<'a> {
    held: &'a Held,
    waking: signs::Waking,
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        if self.held.signs.not_waited_for(&self.waking) {
            self.held.woken.notify_waiters();
        }
    }
}
