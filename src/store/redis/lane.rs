//! A lane: one held connection that all questions share, pipelined, and what happens when it
//! breaks.
//!
//! No question checks a connection out, and none waits for a timer: the client writes what there
//! is to write. A connection is made by a task of its own, so that one that takes longer than a
//! decision may is still made; questions wait for it only as long as their deadline lets them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connect::{CONNECT_TIMEOUT, Connector};
use super::error::{is_connection_lost, is_no_script, of_connecting, of_question};
use super::script::Question;
use crate::error::{StoreError, StoreErrorKind};

/// Beyond so many questions under way a further one fails at once: nothing waits in a queue
/// without bound.
pub(super) const MOST_IN_FLIGHT: usize = 1_024;
/// After a failed attempt to connect, questions fail at once for so long before the next one; so
/// they do when a connection is lost within this time of being made.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// So many questions in a row given up without any answer, and none for [`LONGEST_SILENCE`]: the
/// connection is taken for dead.
const MOST_UNANSWERED: u32 = 3;
/// As long as the pause, so that callers who give up at once, whatever their reason, cause no more
/// new connections than failures do.
const LONGEST_SILENCE: Duration = RECONNECT_PAUSE;

pub(super) struct Lane(Arc<Shared>);

struct Shared {
    connector: Connector,
    link: watch::Sender<Link>,
    in_flight: AtomicUsize,
}

/// The state of the held connection.
#[derive(Clone)]
enum Link {
    /// None, and none on its way; since the last failure, if questions are to wait after it.
    Down(Option<Failure>),
    Connecting,
    Up(Arc<Held>),
}

#[derive(Clone)]
struct Failure {
    at: Instant,
    error: Arc<StoreError>,
}

struct Held {
    connection: MultiplexedConnection,
    since: Instant,
    /// The time of the last answer, in milliseconds after `since`.
    answered_ms: AtomicU64,
    /// Questions given up since the last answer.
    unanswered: AtomicU32,
}

impl Lane {
    pub(super) fn new(connector: Connector) -> Self {
        Self(Arc::new(Shared {
            connector,
            link: watch::Sender::new(Link::Down(None)),
            in_flight: AtomicUsize::new(0),
        }))
    }

    /// Makes sure that there is a connection, and that this command is allowed on it.
    pub(super) async fn try_out(&self, command: Cmd) -> Result<(), StoreError> {
        let held = self.0.held().await?;
        match tokio::time::timeout(CONNECT_TIMEOUT, held.command(command)).await {
            Ok(reply) => reply.map(drop).map_err(of_question),
            Err(elapsed) => Err(StoreError::with_source(StoreErrorKind::TimedOut, elapsed)),
        }
    }

    /// Sends a question. The future owns all it needs and may be dropped at any time; the server
    /// may count the question all the same.
    pub(super) fn send(
        &self,
        question: Question,
    ) -> impl Future<Output = Result<Value, StoreError>> + Send + use<> {
        let shared = Arc::clone(&self.0);
        async move {
            let _place = Place::take(&shared)?;
            let held = shared.held().await?;
            let reply = held.ask(&question).await;
            reply.map_err(|error| {
                if is_connection_lost(&error) {
                    shared.give_up(&held, of_connecting(error.clone()));
                }
                of_question(error)
            })
        }
    }
}

impl Shared {
    /// The held connection; makes one when there is none.
    async fn held(self: &Arc<Self>) -> Result<Arc<Held>, StoreError> {
        if let Link::Up(held) = &*self.link.borrow()
            && !held.is_dead()
        {
            return Ok(Arc::clone(held));
        }
        let mut link = self.link.subscribe();
        loop {
            let current = link.borrow_and_update().clone();
            match current {
                Link::Up(held) if held.is_dead() => {
                    self.give_up(&held, StoreError::new(StoreErrorKind::Unreachable));
                }
                Link::Up(held) => return Ok(held),
                Link::Down(Some(failure)) if failure.at.elapsed() < RECONNECT_PAUSE => {
                    let kind = failure.error.kind();
                    return Err(StoreError::with_source(kind, failure.error));
                }
                Link::Down(_) => self.start_connecting(),
                // The sender lives as long as `self`, so there always is a next state.
                Link::Connecting => drop(link.changed().await),
            }
        }
    }

    /// Starts the one attempt to connect that all waiting questions share.
    fn start_connecting(self: &Arc<Self>) {
        let mine = self.link.send_if_modified(|link| {
            let down = matches!(link, Link::Down(_));
            if down {
                *link = Link::Connecting;
            }
            down
        });
        if mine {
            let attempt = Attempt(Arc::clone(self));
            tokio::spawn(async move {
                let link = match attempt.0.connector.connect().await {
                    Ok(connection) => Link::Up(Arc::new(Held::new(connection))),
                    Err(error) => Link::Down(Some(Failure {
                        at: Instant::now(),
                        error: Arc::new(error),
                    })),
                };
                attempt.0.link.send_replace(link);
            });
        }
    }

    /// Lets go of a connection, unless another one has taken its place already.
    fn give_up(&self, lost: &Arc<Held>, why: StoreError) {
        // A server that takes every connection and serves none is not to be asked for a new one by
        // every question.
        let failure = (lost.since.elapsed() < RECONNECT_PAUSE).then(|| Failure {
            at: Instant::now(),
            error: Arc::new(why),
        });
        self.link.send_if_modified(|link| {
            let held = matches!(link, Link::Up(held) if Arc::ptr_eq(held, lost));
            if held {
                *link = Link::Down(failure);
            }
            held
        });
    }
}

/// An attempt to connect. One that ends without a result, because its runtime was shut down, lets
/// the next question try again.
struct Attempt(Arc<Shared>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.link.send_if_modified(|link| {
            let open = matches!(link, Link::Connecting);
            if open {
                *link = Link::Down(None);
            }
            open
        });
    }
}

impl Held {
    fn new(connection: MultiplexedConnection) -> Self {
        Self {
            connection,
            since: Instant::now(),
            answered_ms: AtomicU64::new(0),
            unanswered: AtomicU32::new(0),
        }
    }

    /// EVALSHA; when the server does not know the script, and so has run nothing, EVAL. Nothing
    /// else is ever sent twice: whether it ran cannot be known.
    async fn ask(&self, question: &Question) -> RedisResult<Value> {
        let waiting = Waiting(self);
        let mut reply = self.command(question.by_digest()).await;
        if reply.as_ref().is_err_and(is_no_script) {
            reply = self.command(question.with_text()).await;
        }
        waiting.answered();
        reply
    }

    async fn command(&self, command: Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let reply = connection.send_packed_command(&command).await?;
        reply.extract_error()
    }

    fn is_dead(&self) -> bool {
        let silent_ms = || {
            self.age_ms()
                .saturating_sub(self.answered_ms.load(Ordering::Relaxed))
        };
        self.unanswered.load(Ordering::Relaxed) >= MOST_UNANSWERED
            && u128::from(silent_ms()) >= LONGEST_SILENCE.as_millis()
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A question under way on a connection. Dropped before the answer, it counts against the
/// connection: a server that hangs, or a network that swallows everything, breaks no connection.
struct Waiting<'a>(&'a Held);

impl Waiting<'_> {
    fn answered(self) {
        let held = self.0;
        held.answered_ms.store(held.age_ms(), Ordering::Relaxed);
        held.unanswered.store(0, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.unanswered.fetch_add(1, Ordering::Relaxed);
    }
}

/// One of the places for questions under way; given back when dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Result<Self, StoreError> {
        let before = shared.in_flight.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(shared));
        if before >= MOST_IN_FLIGHT {
            return Err(StoreError::new(StoreErrorKind::Overloaded));
        }
        Ok(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
