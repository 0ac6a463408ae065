//! `Backend`: the servers, the prefix of their keys, and the clock.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::connection::{Failed, Reach, ReconnectingConnection};
use super::keys::Prefix;
use super::script::Scripted;
use super::self_test::SelfTest;
use crate::error::StoreError;
use crate::key::Subject;
use crate::time::{Clock, Micros};

pub(super) struct Backend {
    servers: Servers,
    prefix: Prefix,
    clock: Option<Arc<dyn Clock>>,
}

/// The kind of servers. Clones share the connections.
#[derive(Clone)]
pub(super) enum Servers {
    One(ReconnectingConnection),
    Cluster(Cluster),
}

impl Backend {
    pub(super) fn new(servers: Servers, prefix: Prefix, clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            servers,
            prefix,
            clock,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// The time to decide at; zero means the server's clock.
    pub(super) fn now(&self) -> Micros {
        self.clock
            .as_ref()
            .map_or(Micros::ZERO, |clock| clock.now())
    }

    /// Sends a script call; in a cluster, to the node of this subject.
    pub(super) async fn send(
        &self,
        call: &impl Scripted,
        subject: Subject,
    ) -> Result<Value, Failed> {
        match &self.servers {
            Servers::One(connection) => connection.send(call).await,
            Servers::Cluster(cluster) => Box::pin(cluster.send(call, subject)).await,
        }
    }

    /// How questions are best sent. Each node of a cluster is treated as one that is near, and so is
    /// any server where the time is a test's: it does not pass while a question is in flight.
    pub(super) fn reach(&self) -> Reach {
        match &self.servers {
            Servers::One(connection) if self.clock.is_none() => connection.round_trips().reach(),
            Servers::One(_) | Servers::Cluster(_) => Reach::Near,
        }
    }

    /// Records that so much work is in flight.
    pub(super) fn begin(&self, work: Duration) {
        if let Servers::One(connection) = &self.servers {
            connection.round_trips().begin(work);
        }
    }

    /// Records that it no longer is.
    pub(super) fn end(&self, work: Duration) {
        if let Servers::One(connection) = &self.servers {
            connection.round_trips().end(work);
        }
    }

    /// Records how long an answer took.
    pub(super) fn answered(&self, round_trip: Duration, now: Instant) {
        if let Servers::One(connection) = &self.servers {
            connection.round_trips().answered(round_trip, now);
        }
    }

    /// Prepares the connection for a question about this subject that will come soon.
    pub(super) fn warm_up(&self, subject: Subject) {
        match &self.servers {
            Servers::One(connection) => connection.warm_up(),
            Servers::Cluster(cluster) => cluster.warm_up(subject),
        }
    }

    pub(super) async fn recovered(&self, within: Duration) {
        match self.servers.clone() {
            Servers::One(connection) => connection.recovered(within).await,
            Servers::Cluster(cluster) => cluster.recovered(within).await,
        }
    }

    /// Runs the self-test on its own keys.
    pub(super) async fn try_out(&self) -> Result<(), StoreError> {
        match &self.servers {
            Servers::One(connection) => {
                let tried = connection
                    .try_out(&SelfTest::of_server(&self.prefix), false)
                    .await;
                let read = tried.map_err(StoreError::from);
                let read = read.and_then(|reply| SelfTest::read(&reply));
                read.map_err(|error| self.naming(error))
            }
            Servers::Cluster(cluster) => cluster.try_out(&self.prefix).await,
        }
    }

    /// Adds the name of a single server to an error about it. The errors of a cluster already name the
    /// node.
    pub(super) fn naming(&self, error: StoreError) -> StoreError {
        match &self.servers {
            Servers::One(connection) if !error.is_of_this_process() => connection.naming(error),
            _ => error,
        }
    }
}
