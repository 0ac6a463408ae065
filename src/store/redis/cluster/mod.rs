//! A cluster: each question is sent to the node with its subject's slot, over that node's own connection,
//! so that a hanging node delays no questions to others.
//!
//! The cluster connection of the client library is not used, for these reasons:
//!
//! - It serves no command while it recovers or looks for nodes, which it asks for the slots one after the
//!   other, under a lock. So one hanging node stops all questions.
//! - It sends a command for a master without a connection to a random node.
//! - It sends ASKING as a separate request, so another command on the same connection can use it up.
//! - It repeats a command whose connection broke, although it may have run. This module repeats one only
//!   if the answer says that nothing ran.

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, RedisError, Value};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{Failed, Handshake, RESPONSE_TIMEOUT, ReconnectingConnection, pause};
use super::error::{is_demoted, of_nameless};
use super::keys::Prefix;
use super::script::Scripted;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;

mod slots;
mod topology;
mod try_out;

use slots::{Node, Slot};
use topology::Topology;

/// How many redirections a question follows; a slot that moves takes two.
const MOST_HOPS: u32 = 8;
/// How long to wait before asking again about keys some of which have moved; doubled each time, up
/// to the longest wait.
const FIRST_WAIT: Duration = Duration::from_millis(2);
const LONGEST_WAIT: Duration = Duration::from_millis(128);
/// How long to wait for the masters before asking who they are now.
const RECOVERY_ROUND: Duration = Duration::from_secs(1);

/// All nodes of a cluster. Clones share them.
#[derive(Clone)]
pub(super) struct Cluster(Arc<Topology>);

/// Where to send a question.
enum Route {
    /// To the node that has the slot by the slot map.
    Master,
    /// To the node that a redirection named.
    To(Node),
    /// To the same node, while it is still taking the slot over.
    Asking(Node),
}

impl Cluster {
    /// On this runtime. The TLS settings were checked for the seeds, and are the same for all
    /// nodes.
    pub(super) fn new(
        seeds: Vec<ConnectionInfo>,
        handshake: Handshake,
        prefix: Prefix,
        home: &Handle,
    ) -> Self {
        Self(Arc::new(Topology::new(seeds, handshake, prefix, home)))
    }

    /// Sends a question about one subject. The future may be dropped at any time.
    pub(super) async fn send(
        &self,
        question: &impl Scripted,
        subject: Subject,
    ) -> Result<Value, Failed> {
        let slot = Slot::of_tag(&subject.digits());
        let refresh = RefreshUnlessAnswered(Some(self.0.clone()));
        let ask = |connection: ReconnectingConnection, is_asking| async move {
            connection.ask(question, is_asking).await
        };
        let answer = self.follow(Route::Master, slot, ask).await;
        match &answer {
            // The node may be gone or replaced, another server may have its address, or the slot had no
            // node.
            Err(Failed::NotAsked(_)) => {}
            Err(failed) if is_about_the_node(failed.kind()) => {}
            _ => refresh.not_needed(),
        }
        answer
    }

    /// Prepares the connection to the node of a subject for a question that will come soon.
    pub(super) fn warm_up(&self, subject: Subject) {
        let slot = Slot::of_tag(&subject.digits());
        let slots = self.0.known_slots();
        let node = slots.as_ref().and_then(|slots| slots.master_of(slot));
        if let Some(Ok(connection)) = node.map(|node| self.0.connection(node)) {
            connection.warm_up();
        }
    }

    /// Asks by this route, and follows redirections.
    async fn follow<F>(
        &self,
        mut route: Route,
        slot: Slot,
        ask: impl Fn(ReconnectingConnection, bool) -> F,
    ) -> Result<Value, Failed>
    where
        F: Future<Output = Result<Value, Failed>>,
    {
        for _ in 0..MOST_HOPS {
            let (node, is_asking) = match route {
                Route::Master => (self.master_of(slot).await?, false),
                Route::To(node) => (node, false),
                Route::Asking(node) => (node, true),
            };
            let error = match self.ask_when_moved(&node, &ask, is_asking).await {
                Ok(value) => return Ok(value),
                Err(Failed::Answer(error)) => error,
                Err(Failed::NotAsked(error)) => return Err(error.of_server(node).into()),
                failed => return failed,
            };
            route = if let Some(route) = redirection(&error, &node) {
                if matches!(route, Route::To(_)) {
                    self.0.refresh();
                }
                route
            } else if is_demoted(&error) || is_moved(&error) {
                self.0.refreshed().await;
                Route::Master
            } else if is_asking_elsewhere(&error) {
                return Err(Failed::NotAsked(of_nameless(error).of_server(node)));
            } else {
                return Err(Failed::AnswerOf(Box::new((error, node.to_string()))));
            };
        }
        Err(Failed::NotAsked(StoreError::with_source(
            StoreErrorKind::Busy,
            "the cluster's nodes do not agree on who has the slot",
        )))
    }

    /// Asks the node until it has all keys of the question or none: then it answers or redirects.
    /// Waits as long as for any reply; the caller has a deadline.
    async fn ask_when_moved<F>(
        &self,
        node: &Node,
        ask: impl Fn(ReconnectingConnection, bool) -> F,
        is_asking: bool,
    ) -> Result<Value, Failed>
    where
        F: Future<Output = Result<Value, Failed>>,
    {
        let asked = Instant::now();
        let mut wait = FIRST_WAIT;
        loop {
            match ask(self.0.connection(node)?, is_asking).await {
                Err(Failed::Answer(error)) if error.code() == Some("TRYAGAIN") => {
                    if asked.elapsed() > RESPONSE_TIMEOUT {
                        return Err(Failed::Answer(error));
                    }
                    tokio::time::sleep(wait).await;
                    wait = LONGEST_WAIT.min(wait * 2);
                }
                answer => return answer,
            }
        }
    }

    async fn master_of(&self, slot: Slot) -> Result<Node, StoreError> {
        let slots = self.0.slots().await?;
        slots.master_of(slot).cloned().ok_or_else(|| {
            StoreError::with_source(
                StoreErrorKind::Busy,
                "no node has the slot: see CLUSTER INFO",
            )
        })
    }

    /// Ends when all current masters answer within this time again, or when some do and the others
    /// do not follow.
    pub(super) async fn recovered(self, within: Duration) {
        loop {
            self.0.refresh();
            match self.some_recovered(within).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(_) => tokio::time::sleep(pause()).await,
            }
        }
    }

    /// Waits for all masters for a while. Returns whether any has answered.
    async fn some_recovered(&self, within: Duration) -> Result<bool, StoreError> {
        let end = Instant::now() + RECOVERY_ROUND;
        let Ok(slots) = tokio::time::timeout_at(end, self.0.slots()).await else {
            return Ok(false);
        };
        let mut masters = JoinSet::new();
        for master in slots?.masters() {
            masters.spawn(self.0.connection(master)?.recovered(within));
        }
        let mut has_any = false;
        while let Ok(Some(one)) = tokio::time::timeout_at(end, masters.join_next()).await {
            has_any |= one.is_ok();
        }
        Ok(has_any)
    }
}

/// The redirection in an answer.
fn redirection(error: &RedisError, by: &Node) -> Option<Route> {
    let (node, _) = error.redirect_node()?;
    let node = Node::parse(node, by)?;
    Some(match error.code() {
        Some("ASK") => Route::Asking(node),
        _ => Route::To(node),
    })
}

/// Whether another node has the slot. The slot map names it, even if this answer does not.
fn is_moved(error: &RedisError) -> bool {
    error.code() == Some("MOVED")
}

/// Whether another node is taking the slot over. Only this answer names it.
fn is_asking_elsewhere(error: &RedisError) -> bool {
    error.code() == Some("ASK")
}

fn is_about_the_node(kind: StoreErrorKind) -> bool {
    matches!(
        kind,
        StoreErrorKind::Unreachable
            | StoreErrorKind::Interrupted
            | StoreErrorKind::TimedOut
            | StoreErrorKind::Busy
    )
}

/// Asks for the slot map if a question is given up, as a node that hangs breaks no connection.
struct RefreshUnlessAnswered(Option<Arc<Topology>>);

impl RefreshUnlessAnswered {
    fn not_needed(mut self) {
        self.0 = None;
    }
}

impl Drop for RefreshUnlessAnswered {
    fn drop(&mut self) {
        if let Some(topology) = &self.0 {
            topology.refresh();
        }
    }
}
