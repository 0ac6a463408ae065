//! `Attempt`: reads the slot map, asking one node after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{ConnectionAddr, Value};
use tokio::time::Instant;

use super::super::slots::{Node, SlotMap};
use super::{REFRESH_PAUSE, Topology};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::connection::{CONNECT_TIMEOUT, Failed};
use crate::store::redis::error::{is_command_refused, of_time_out, of_unassigned_slots};
use crate::task::is_ending;

/// How long a node may take to answer CLUSTER SLOTS before the next is asked. While there is no slot
/// map yet, the last node has as long as connecting may take.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the masters may take together before the nodes in the URL are asked. All masters may
/// have been moved to other addresses, and a large cluster has many.
const MASTERS_TIMEOUT: Duration = NODE_TIMEOUT.saturating_mul(2);

/// The only attempt. If it ends without a result because its runtime shut down, the next question
/// tries again.
pub(super) struct Attempt(pub(super) Arc<Topology>);

impl Topology {
    /// Asks for the slot map without waiting for it, unless that was just done.
    pub(in crate::store::redis::cluster) fn refresh(self: &Arc<Self>) {
        let mine = self.view.send_if_modified(|view| {
            let recently = |last: &(Instant, _)| last.0.elapsed() < REFRESH_PAUSE;
            let due = !view.is_refreshing && !view.last.as_ref().is_some_and(recently);
            view.is_refreshing |= due;
            due
        });
        if mine {
            self.home.spawn(Attempt(Arc::clone(self)).run());
        }
    }
}

impl Attempt {
    pub(super) async fn run(self) {
        let read = self.read().await;
        // No evidence about the nodes.
        if !(read.is_err() && is_ending(&self.0.home)) {
            self.learn(read);
        }
    }

    /// Returns the slot map of the first node that answers CLUSTER SLOTS, and that node. If no node
    /// ever does, and one refuses the command, that node counts as having all slots.
    async fn read(&self) -> Result<(SlotMap, Node), StoreError> {
        let topology = &self.0;
        let known = Arc::clone(&topology.view.borrow().slots);
        let mut masters: Vec<Node> = known.masters().into_iter().cloned().collect();
        // Each attempt begins with another node, as one may be cut off from the others.
        let first = topology.attempts.fetch_add(1, Ordering::Relaxed) % masters.len().max(1);
        masters.rotate_left(first);
        // The URL's nodes may be other names of masters, or replicas: no connection to them is kept
        // while a master answers.
        let seeds = topology.seeds.iter();
        let seeds = seeds.filter_map(|seed| node_of(seed.addr()));
        let seeds: Vec<Node> = seeds.filter(|seed| !masters.contains(seed)).collect();
        let (mut masters, mut seeds) = (masters.into_iter(), seeds.into_iter());
        let mut why = StoreError::new(StoreErrorKind::Configuration);
        let was_told = !known.is_empty() && known.why_unassigned().is_none();
        let mut unassigned = None;
        let start = Instant::now();
        loop {
            let node = match start.elapsed() < MASTERS_TIMEOUT {
                true => masters.next().or_else(|| seeds.next()),
                false => seeds.next().or_else(|| masters.next()),
            };
            let Some(node) = node else {
                return unassigned.ok_or(why);
            };
            let is_last = masters.len() + seeds.len() == 0;
            let patience = match known.is_empty() && is_last {
                true => CONNECT_TIMEOUT,
                false => NODE_TIMEOUT,
            };
            match self.ask(&node, patience).await {
                Ok(slots) => return Ok((slots, node)),
                Err(Failed::Answer(error)) if is_command_refused(&error) => {
                    why = of_unassigned_slots(error).of_server(&node);
                    if !was_told && unassigned.is_none() {
                        unassigned = Some((SlotMap::unassigned(node.clone(), why.clone()), node));
                    }
                }
                Err(failed) => why = StoreError::from(failed).of_server(node),
            }
        }
    }

    async fn ask(&self, node: &Node, patience: Duration) -> Result<SlotMap, Failed> {
        let connection = self.0.connection_for(node, false)?;
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        match tokio::time::timeout(patience, connection.command(question)).await {
            Ok(answer) => {
                let answer = answer?;
                match SlotMap::read(&answer, node) {
                    Some(slots) if !slots.is_empty() => Ok(slots),
                    _ => Err(no_slots(&answer).into()),
                }
            }
            Err(elapsed) => Err(of_time_out(elapsed).into()),
        }
    }

    pub(super) fn learn(&self, read: Result<(SlotMap, Node), StoreError>) {
        let topology = &self.0;
        topology.view.send_modify(|view| {
            let failure = match read {
                Ok((slots, answered_by)) => {
                    let slots = slots.with_gaps_as_in(&view.slots);
                    let known = view.slots.masters();
                    // While no master answers, the node asked instead will be asked again soon:
                    // over the same connection, or after the pause of its connection.
                    if known.is_empty() || known.contains(&&answered_by) {
                        topology.forget_all_but(&slots.masters());
                    }
                    topology.tell_tags(&slots);
                    view.slots = Arc::new(slots);
                    None
                }
                Err(error) => Some(error),
            };
            view.last = Some((Instant::now(), failure));
            view.is_refreshing = false;
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let view = &self.0.view;
        view.send_if_modified(|view| std::mem::take(&mut view.is_refreshing));
    }
}

fn node_of(address: &ConnectionAddr) -> Option<Node> {
    match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(Node::new(host, *port))
        }
        _ => None,
    }
}

fn no_slots(answer: &Value) -> StoreError {
    match answer {
        Value::Array(ranges) if ranges.is_empty() => StoreError::with_source(
            StoreErrorKind::Busy,
            "the cluster's slots have no masters yet: see CLUSTER ADDSLOTS",
        ),
        _ => StoreError::with_source(StoreErrorKind::BadReply, "CLUSTER SLOTS has no slots"),
    }
}
