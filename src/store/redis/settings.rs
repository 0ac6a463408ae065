//! `Settings`: all that a store knows before it has a runtime. With each runtime that it lives on,
//! its connections and queues are made anew from these.

use std::sync::Arc;

use redis::ConnectionInfo;
use tokio::runtime::Handle;

use super::backend::Servers;
use super::cluster::Cluster;
use super::connection::{Connector, Handshake, ReconnectingConnection};
use super::keys::Prefix;
use super::waits::Waits;
use crate::task::InFlightWork;
use crate::time::Clock;

pub(super) struct Settings {
    pub(super) source: Source,
    /// The server or servers, as the URL names them.
    pub(super) name: Arc<str>,
    pub(super) prefix: Prefix,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) max_in_flight: usize,
    pub(super) waits: Waits,
    /// What is given back without anybody waiting for it.
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
