//! `Server`: the servers behind a store, and how they are asked.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::connection::{Failed, Lane};
use super::in_flight::InFlight;
use super::keys::Prefix;
use super::script::Scripted;
use super::self_test::SelfTest;
use super::settings::Settings;
use super::split;
use super::takes::{AnyTakes, PlainPack, PlainSeveral, Take};
use super::trips::{SharedTrips, Sharing};
use super::waits::Waits;
use super::whole::Whole;
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::key::Subject;
use crate::per_thread::{Spread, SpreadRef};
use crate::store::deny_cache::noted::Noted;
use crate::store::{Check, PendingAnswer, UnderWay};
use crate::time::{Clock, Micros};

/// The servers, without the deny cache. Clones share the connections.
#[derive(Clone)]
pub(super) struct Server(SpreadRef<Shared>);

pub(super) struct Shared {
    servers: Servers,
    prefix: Prefix,
    clock: Option<Arc<dyn Clock>>,
    trips: Trips,
    in_flight: InFlight,
    waits: Waits,
    /// What is given back without anybody waiting for it.
    under_way: UnderWay,
    /// Keeps a thread of the store's own.
    _is_used: Option<oneshot::Sender<Infallible>>,
}

/// The trips that questions of each kind share.
#[derive(Default)]
pub(super) struct Trips {
    pub(super) of_takes: SharedTrips<Take>,
    pub(super) of_packs: SharedTrips<PlainPack>,
    pub(super) of_several: SharedTrips<PlainSeveral>,
    pub(super) of_any_takes: SharedTrips<AnyTakes>,
}

/// The kind of servers. Clones share the connections.
#[derive(Clone)]
pub(super) enum Servers {
    One(Lane),
    Cluster(Cluster),
}

impl Server {
    /// Makes everything anew on this runtime.
    pub(super) fn spread(
        settings: &Settings,
        runtime: &Handle,
        is_used: Option<oneshot::Sender<Infallible>>,
    ) -> Spread<Shared> {
        Spread::new(Shared {
            servers: settings.servers_on(runtime),
            prefix: settings.prefix.clone(),
            clock: settings.clock.clone(),
            trips: Trips::default(),
            in_flight: InFlight::new(settings.max_in_flight),
            waits: settings.waits,
            under_way: settings.under_way.clone(),
            _is_used: is_used,
        })
    }

    /// A handle for a question of this thread.
    pub(super) fn of(shared: &Spread<Shared>) -> Self {
        Self(shared.hold())
    }

    /// A handle for questions of the threads of this place.
    pub(super) fn at(shared: &Spread<Shared>, place: usize) -> Self {
        Self(shared.hold_at(place))
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.0.servers
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.0.servers, Servers::Cluster(_))
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.0.prefix
    }

    pub(super) fn waits(&self) -> Waits {
        self.0.waits
    }

    pub(super) fn under_way(&self) -> &UnderWay {
        &self.0.under_way
    }

    pub(super) fn trips(&self) -> &Trips {
        &self.0.trips
    }

    /// Sends a question; in a cluster, to the node of this subject.
    pub(super) async fn send(
        &self,
        question: &impl Scripted,
        subject: Subject,
    ) -> Result<Value, Failed> {
        match &self.0.servers {
            Servers::One(lane) => lane.send(question).await,
            Servers::Cluster(cluster) => Box::pin(cluster.send(question, subject)).await,
        }
    }

    /// Prepares the connection for a question about this subject that will come soon.
    pub(super) fn warm_up(&self, subject: Subject) {
        match &self.0.servers {
            Servers::One(lane) => lane.warm_up(),
            Servers::Cluster(cluster) => cluster.warm_up(subject),
        }
    }

    /// The time to decide at; zero means the server's clock.
    pub(super) fn now(&self) -> Micros {
        let clock = self.0.clock.as_ref();
        clock.map_or(Micros::ZERO, |clock| clock.now())
    }

    pub(super) async fn recovered(self, within: Duration) {
        match self.0.servers.clone() {
            Servers::One(lane) => lane.recovered(within).await,
            Servers::Cluster(cluster) => cluster.recovered(within).await,
        }
    }

    /// Tries what decisions do, on keys of its own.
    pub(super) async fn try_out(self) -> Result<(), StoreError> {
        let prefix = self.prefix();
        match self.servers() {
            Servers::One(lane) => {
                let tried = lane.try_out(&SelfTest::of_server(prefix), false).await;
                let read = tried.map_err(StoreError::from);
                let read = read.and_then(|reply| SelfTest::read(&reply));
                read.map_err(|error| self.naming(error))
            }
            Servers::Cluster(cluster) => cluster.try_out(prefix).await,
        }
    }
}

impl Server {
    /// Answers these checks, with one script or with one for each subject, and records the answer
    /// in the deny cache. The future owns all it needs, and may be dropped at any time.
    pub(super) fn answer_and_note(
        self,
        checks: &[Check<'_>],
        noted: Option<Noted>,
    ) -> PendingAnswer {
        if self.is_split(checks) {
            let parts = split::parts(checks);
            let forgetting = noted.as_ref().map(Noted::forgetting);
            return Box::pin(async move {
                let _in_flight = self.0.in_flight.begin()?;
                told(noted, split::ask(self.clone(), forgetting, parts).await)
            });
        }
        match self.whole(checks) {
            Whole::Take(take) => self.answer_in_place(take, noted),
            Whole::PlainPack(pack) => self.answer_in_place(pack, noted),
            Whole::PlainSeveral(several) => self.answer_in_place(several, noted),
            Whole::AnyTakes(any) => self.answer_in_place(any, noted),
            whole @ (Whole::Nothing | Whole::Any(_)) => Box::pin(async move {
                let _in_flight = self.0.in_flight.begin()?;
                told(noted, self.answer(whole).await).map_err(|error| self.naming(error))
            }),
        }
    }

    /// Whether no single script can use the keys of all checks.
    fn is_split(&self, checks: &[Check<'_>]) -> bool {
        let mut subjects = checks.iter().map(|check| check.subject);
        let first = subjects.next();
        self.is_cluster() && subjects.any(|subject| Some(subject) != first)
    }

    /// Answers a question that may share a trip, as nearly all may. Its future is used as it is,
    /// rather than moved into another one. The question itself carries the deny cache's note.
    fn answer_in_place<Q>(self, mut question: Box<Q>, noted: Option<Noted>) -> PendingAnswer
    where
        Q: Sharing<Decided: Into<Decisions>>,
    {
        *question.noted() = noted;
        Box::pin(async move {
            let _in_flight = self.0.in_flight.begin()?;
            let decided = self.answer_shared(question).await;
            Ok(decided.map_err(|error| self.naming(error))?.into())
        })
    }

    /// The error with the name of a single server, unless it says nothing about it. A cluster names
    /// its nodes itself.
    pub(super) fn naming(&self, error: StoreError) -> StoreError {
        match &self.0.servers {
            Servers::One(lane) if !error.is_of_this_process() => lane.naming(error),
            _ => error,
        }
    }
}

/// Returns an answer after recording it in the deny cache.
pub(super) fn told(
    noted: Option<Noted>,
    answer: Result<Decisions, StoreError>,
) -> Result<Decisions, StoreError> {
    if let Some(noted) = noted {
        noted.answered(&answer);
    }
    answer
}
