//! `Settings`: the configuration of a store. Its connections and queues are made from these, anew on
//! each runtime that it lives on.

use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use tokio::runtime::Handle;

use super::backend::Servers;
use super::cluster::Cluster;
use super::connection::{Connector, Handshake, ReconnectingConnection};
use super::keys::Prefix;
use crate::task::InFlightWork;
use crate::time::Clock;

pub(super) struct Settings {
    pub(super) source: Source,
    /// The servers, as named in the URL.
    pub(super) name: Arc<str>,
    pub(super) prefix: Prefix,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) max_in_flight: usize,
    pub(super) waits: Waits,
    /// Permits that are being given back in the background.
    pub(super) in_flight_work: InFlightWork,
}

/// Where connections come from.
pub(super) enum Source {
    One(Connector),
    Cluster {
        seeds: Vec<ConnectionInfo>,
        handshake: Handshake,
    },
}

impl Settings {
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.source, Source::Cluster { .. })
    }

    /// The servers, without connections so far, on this runtime.
    pub(super) fn servers_on(&self, runtime: &Handle) -> Servers {
        let prefix = self.prefix.clone();
        match &self.source {
            Source::One(connector) => Servers::One(ReconnectingConnection::new(
                connector.anew(),
                prefix,
                runtime,
            )),
            Source::Cluster { seeds, handshake } => {
                let (seeds, handshake) = (seeds.clone(), handshake.clone());
                Servers::Cluster(Cluster::new(seeds, handshake, prefix, runtime))
            }
        }
    }
}

/// How long a decision waits for others. The store does not know the limiter's deadline; the
/// defaults fit the default deadline.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    /// For a call in flight. After that, others are sent without its reply: its caller may be busy, or
    /// the server slow or far away, and most deadlines leave time for another call after this wait.
    pub(super) for_batches: Duration,
    /// For other nodes of a cluster, in addition to the time that the decided part took.
    pub(super) for_other_nodes: Duration,
}

impl Waits {
    pub(super) const USUAL: Self = Self {
        for_batches: Duration::from_millis(10),
        for_other_nodes: Duration::from_millis(10),
    };
}
