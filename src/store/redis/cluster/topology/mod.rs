//! The nodes of a cluster: a connection to each, and the slot map, which is asked for again if it seems
//! wrong.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::slots::{Node, SlotMap};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::connection::{Connector, Handshake, ReconnectingConnection};
use crate::store::redis::keys::Prefix;
use crate::task::is_ending;

mod attempt;

/// The minimum time between questions for the slot map.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Topology {
    /// The nodes in the URL; all others use the same login.
    seeds: Vec<ConnectionInfo>,
    handshake: Handshake,
    prefix: Prefix,
    /// Where everything of this cluster runs.
    home: Handle,
    connections: Mutex<Connections>,
    view: watch::Sender<View>,
    attempts: AtomicUsize,
}

#[derive(Default)]
struct Connections {
    known: HashMap<Node, KnownConnection>,
    /// For each master a tag whose slot it has.
    tags: HashMap<Node, String>,
}

struct KnownConnection {
    connection: ReconnectingConnection,
    /// Whether a question used this connection since the slot map was last learned.
    is_in_use: bool,
}

/// What is known of the cluster.
#[derive(Clone)]
struct View {
    slots: Arc<SlotMap>,
    /// Whether an attempt is in flight.
    is_refreshing: bool,
    /// The end of the last attempt, and why it failed.
    last: Option<(Instant, Option<StoreError>)>,
}

impl Topology {
    pub(super) fn new(
        seeds: Vec<ConnectionInfo>,
        handshake: Handshake,
        prefix: Prefix,
        home: &Handle,
    ) -> Self {
        Self {
            seeds,
            handshake,
            prefix,
            home: home.clone(),
            connections: Mutex::default(),
            view: watch::Sender::new(View {
                slots: Arc::default(),
                is_refreshing: false,
                last: None,
            }),
            attempts: AtomicUsize::new(0),
        }
    }

    /// The slot map, which is asked for if there is none yet.
    pub(super) async fn slots(self: &Arc<Self>) -> Result<Arc<SlotMap>, StoreError> {
        match self.known_slots() {
            Some(slots) => Ok(slots),
            None => Box::pin(self.first_slots()).await,
        }
    }

    pub(super) fn known_slots(&self) -> Option<Arc<SlotMap>> {
        let view = self.view.borrow();
        (!view.slots.is_empty()).then(|| Arc::clone(&view.slots))
    }

    async fn first_slots(self: &Arc<Self>) -> Result<Arc<SlotMap>, StoreError> {
        let asked = Instant::now();
        let mut view = self.view.subscribe();
        loop {
            let current = view.borrow_and_update().clone();
            if !current.slots.is_empty() {
                return Ok(current.slots);
            }
            if !current.is_refreshing
                && let Some((at, Some(error))) = current.last
                && (at > asked || at.elapsed() < REFRESH_PAUSE)
            {
                return Err(error);
            }
            // Attempts would start and end again for ever.
            if !current.is_refreshing && is_ending(&self.home) {
                return Err(StoreError::new(StoreErrorKind::Unreachable).of_this_process());
            }
            self.refresh();
            // The sender lives as long as `self`, so there always is a next state.
            let _ = view.changed().await;
        }
    }

    /// Waits for a slot map that is asked for from now on, unless this runtime is shutting down.
    pub(super) async fn refreshed(self: &Arc<Self>) {
        let asked = Instant::now();
        let mut view = self.view.subscribe();
        loop {
            let current = view.borrow_and_update().clone();
            match current.last {
                Some((at, _)) if at > asked && !current.is_refreshing => return,
                _ if !current.is_refreshing && is_ending(&self.home) => return,
                Some((at, _)) if !current.is_refreshing && at.elapsed() < REFRESH_PAUSE => {
                    tokio::time::sleep_until(at + REFRESH_PAUSE).await;
                    self.refresh();
                }
                _ => self.refresh(),
            }
            let _ = view.changed().await;
        }
    }

    /// The connection to a node, for a question.
    pub(super) fn connection(&self, node: &Node) -> Result<ReconnectingConnection, StoreError> {
        self.connection_for(node, true)
    }

    fn connection_for(
        &self,
        node: &Node,
        is_for_question: bool,
    ) -> Result<ReconnectingConnection, StoreError> {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = connections.known.get_mut(node) {
            known.is_in_use |= is_for_question;
            return Ok(known.connection.clone());
        }
        let connector = Connector::to(self.login_at(node)?, &self.handshake)?;
        let connection =
            ReconnectingConnection::to_node(connector, self.prefix.clone(), &self.home);
        if let Some(tag) = connections.tags.get(node) {
            connection.probe_with_tag(tag.clone());
        }
        let known = KnownConnection {
            connection: connection.clone(),
            is_in_use: is_for_question,
        };
        connections.known.insert(node.clone(), known);
        Ok(connection)
    }

    fn login_at(&self, node: &Node) -> Result<ConnectionInfo, StoreError> {
        let Some(seed) = self.seeds.first() else {
            return Err(StoreError::new(StoreErrorKind::Configuration));
        };
        let (host, port) = (node.host.to_string(), node.port);
        let address = match seed.addr() {
            ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Ok(seed.clone().set_addr(address))
    }

    /// Drops connections to nodes that are no masters any more, unless a question was redirected there
    /// lately: a node that is taking over its first slot is no master yet.
    fn forget_all_but(&self, masters: &[&Node]) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connections.known.retain(|node, known| {
            let was_in_use = std::mem::replace(&mut known.is_in_use, false);
            was_in_use || masters.contains(&node)
        });
    }

    /// Lets each master be probed with a key that it has.
    fn tell_tags(&self, slots: &SlotMap) {
        let tags = slots.tags().into_iter();
        let tags: HashMap<_, _> = tags.map(|(node, tag)| (node.clone(), tag)).collect();
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (node, known) in &connections.known {
            if let Some(tag) = tags.get(node) {
                known.connection.probe_with_tag(tag.clone());
            }
        }
        connections.tags = tags;
    }
}

#[cfg(test)]
mod tests;
