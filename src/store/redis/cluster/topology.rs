//! The nodes of a cluster: a lane to each, and the slot map, asked for anew when it seems wrong.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use super::slots::{Node, SlotMap};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::connection::{Connector, Lane};

/// How long one node may take to tell the slot map before the next is asked.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// The slot map is not asked for more often.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Topology {
    /// The nodes that the URL names; all others have their login and certificates.
    seeds: Vec<ConnectionInfo>,
    lanes: Mutex<HashMap<Node, Lane>>,
    view: watch::Sender<View>,
    attempts: AtomicUsize,
}

/// What is known of the cluster.
#[derive(Clone)]
struct View {
    slots: Arc<SlotMap>,
    is_refreshing: bool,
    /// The end of the last attempt, and why it failed.
    last: Option<(Instant, Option<Arc<StoreError>>)>,
}

impl Topology {
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Self {
        Self {
            seeds,
            lanes: Mutex::default(),
            view: watch::Sender::new(View {
                slots: Arc::default(),
                is_refreshing: false,
                last: None,
            }),
            attempts: AtomicUsize::new(0),
        }
    }

    /// The slot map; asked for if there is none yet.
    pub(super) async fn slots(self: &Arc<Self>) -> Result<Arc<SlotMap>, StoreError> {
        match self.known_slots() {
            Some(slots) => Ok(slots),
            None => Box::pin(self.first_slots()).await,
        }
    }

    fn known_slots(&self) -> Option<Arc<SlotMap>> {
        let view = self.view.borrow();
        (!view.slots.is_empty()).then(|| Arc::clone(&view.slots))
    }

    async fn first_slots(self: &Arc<Self>) -> Result<Arc<SlotMap>, StoreError> {
        let mut view = self.view.subscribe();
        loop {
            let current = view.borrow_and_update().clone();
            if !current.slots.is_empty() {
                return Ok(current.slots);
            }
            if !current.is_refreshing
                && let Some((at, Some(error))) = current.last
                && at.elapsed() < REFRESH_PAUSE
            {
                return Err(StoreError::with_source(error.kind(), error));
            }
            self.refresh();
            // The sender lives as long as `self`, so there always is a next state.
            let _ = view.changed().await;
        }
    }

    /// Waits for a slot map that was asked for after now.
    pub(super) async fn refreshed(self: &Arc<Self>) {
        let asked = Instant::now();
        let mut view = self.view.subscribe();
        loop {
            let current = view.borrow_and_update().clone();
            match current.last {
                Some((at, _)) if at > asked && !current.is_refreshing => return,
                Some((at, _)) if !current.is_refreshing && at.elapsed() < REFRESH_PAUSE => {
                    tokio::time::sleep_until(at + REFRESH_PAUSE).await;
                    self.refresh();
                }
                _ if !current.is_refreshing => self.refresh(),
                _ => {}
            }
            let _ = view.changed().await;
        }
    }

    /// Asks for the slot map without waiting for it, unless that was just done.
    pub(super) fn refresh(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mine = self.view.send_if_modified(|view| {
            let recently = |last: &(Instant, _)| last.0.elapsed() < REFRESH_PAUSE;
            let due = !view.is_refreshing && !view.last.as_ref().is_some_and(recently);
            view.is_refreshing |= due;
            due
        });
        if mine {
            let attempt = Attempt(Arc::clone(self));
            runtime.spawn(async move {
                let read = attempt.0.read().await;
                attempt.0.learn(read);
                drop(attempt);
            });
        }
    }

    fn learn(&self, read: Result<SlotMap, StoreError>) {
        let now = Instant::now();
        self.view.send_modify(|view| {
            view.is_refreshing = false;
            match read {
                Ok(slots) => {
                    self.forget_all_but(&slots.masters());
                    view.slots = Arc::new(slots);
                    view.last = Some((now, None));
                }
                Err(error) => view.last = Some((now, Some(Arc::new(error)))),
            }
        });
    }

    /// The slot map, as the first node says that gives an answer.
    async fn read(&self) -> Result<SlotMap, StoreError> {
        let known = Arc::clone(&self.view.borrow().slots);
        let mut nodes: Vec<Node> = known.masters().into_iter().cloned().collect();
        // The first to be asked is another one each time: it may be cut off from the others, and
        // not know it.
        let first = self.attempts.fetch_add(1, Ordering::Relaxed) % nodes.len().max(1);
        nodes.rotate_left(first);
        // By names of theirs, or replicas: no connection to them is held once the masters are known.
        nodes.extend(self.seeds.iter().filter_map(|seed| node_of(seed.addr())));
        let mut why = StoreError::new(StoreErrorKind::Configuration);
        for node in nodes {
            let lane = self.lane(&node)?;
            let mut question = redis::cmd("CLUSTER");
            question.arg("SLOTS");
            match tokio::time::timeout(NODE_TIMEOUT, lane.command(question)).await {
                Ok(Ok(answer)) => match SlotMap::read(&answer, &node) {
                    Some(slots) if !slots.is_empty() => return Ok(slots),
                    _ => why = no_slots(&answer),
                },
                Ok(Err(error)) => why = error,
                Err(elapsed) => {
                    why = StoreError::with_source(StoreErrorKind::Unreachable, elapsed);
                }
            }
        }
        Err(why)
    }

    /// The lane to a node.
    pub(super) fn lane(&self, node: &Node) -> Result<Lane, StoreError> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(node) {
            return Ok(lane.clone());
        }
        let lane = Lane::to_node(Connector::to(self.login_at(node)?)?);
        lanes.insert(node.clone(), lane.clone());
        Ok(lane)
    }

    fn login_at(&self, node: &Node) -> Result<ConnectionInfo, StoreError> {
        let Some(seed) = self.seeds.first() else {
            return Err(StoreError::new(StoreErrorKind::Configuration));
        };
        let (host, port) = (node.host.to_string(), node.port);
        let address = match seed.addr() {
            ConnectionAddr::TcpTls { tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Ok(seed.clone().set_addr(address))
    }

    /// Lets go of lanes to nodes that are no masters any more.
    fn forget_all_but(&self, masters: &[&Node]) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|node, _| masters.contains(&node));
    }
}

/// An attempt to read the slot map. One that ends without a result, because its runtime was shut
/// down, lets the next question try again.
struct Attempt(Arc<Topology>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0
            .view
            .send_if_modified(|view| std::mem::replace(&mut view.is_refreshing, false));
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
