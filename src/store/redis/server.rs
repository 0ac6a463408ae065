//! `Server`: the servers behind a store, and how a question to them is answered: by the leanest script
//! that can.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::cluster::Cluster;
use super::error::is_other_form;
use super::keys::Prefix;
use super::lane::{Failed, Lane};
use super::places::Places;
use super::plain::{self, Alone};
use super::plain_pack::PlainPack;
use super::reply::Expected;
use super::script::{Question, Scripted};
use super::shared_trips::{SharedTrips, Told, Trip as OwnTrip, Turn};

use super::split::{self, Part};
use super::take::{Readings, Take, Together};
use crate::algorithm::{PlainTake, Reading};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::store::deny_cache::asked::Asked as Noted;
use crate::store::{Check, Recovered};
use crate::time::{Clock, Micros};

/// The servers, without a memory of denials. Clones share the connections.
#[derive(Clone)]
pub(super) struct Server(Arc<Shared>);

struct Shared {
    servers: Servers,
    prefix: Prefix,
    clock: Option<Arc<dyn Clock>>,
    shared_trips: SharedTrips,
    places: Places,
}

/// Who is asked. Clones share the connections.
#[derive(Clone)]
pub(super) enum Servers {
    One(Lane),
    Cluster(Cluster),
}

/// A question on its way. It owns all it needs.
pub(super) struct Trip {
    server: Server,
    asked: Asked,
    /// Who remembers what is denied; of a take, that knows it itself.
    noted: Option<Box<Noted>>,
}

/// What is asked, from the leanest to what can ask everything. It is boxed: the size of all trips is that
/// of the largest.
enum Asked {
    Nothing,
    Take(Box<Take>),
    PlainPack(Box<PlainPack>),
    Any(Box<Any>),
    Split(Vec<Part>),
}

/// Checks of one subject, whatever they ask.
struct Any {
    question: Question,
    expected: Expected,
    subject: Subject,
}

impl Server {
    pub(super) fn new(servers: Servers, prefix: Prefix, clock: Option<Arc<dyn Clock>>) -> Self {
        Self(Arc::new(Shared {
            servers,
            prefix,
            clock,
            shared_trips: SharedTrips::default(),
            places: Places::default(),
        }))
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.0.servers
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.0.prefix
    }

    pub(super) fn clock(&self) -> Option<&Arc<dyn Clock>> {
        self.0.clock.as_ref()
    }

    pub(super) fn shared_trips(&self) -> &SharedTrips {
        &self.0.shared_trips
    }

    pub(super) fn trip(&self, checks: &[Check<'_>], noted: Option<Noted>) -> Trip {
        let mut trip = Trip {
            server: self.clone(),
            asked: self.asked(checks),
            noted: None,
        };
        match &mut trip.asked {
            Asked::Take(take) => take.noted = noted,
            _ => trip.noted = noted.map(Box::new),
        }
        trip
    }

    fn asked(&self, checks: &[Check<'_>]) -> Asked {
        let Some(first) = checks.first() else {
            return Asked::Nothing;
        };
        let (prefix, now) = (&self.0.prefix, self.now());
        let is_split = matches!(self.0.servers, Servers::Cluster(_))
            && checks.iter().any(|check| check.subject != first.subject);
        if is_split {
            Asked::Split(split::parts(checks))
        } else if let Some(take) = Take::of(checks, now) {
            Asked::Take(take)
        } else if let Some(pack) = PlainPack::of(checks, prefix, now) {
            Asked::PlainPack(Box::new(pack))
        } else {
            Asked::Any(Box::new(Any {
                question: Question::new(checks, prefix, now),
                expected: Expected::of(checks),
                subject: first.subject,
            }))
        }
    }

    /// Asks checks of one subject by the script for everything.
    pub(super) async fn ask_any(&self, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
        let Some(first) = checks.first() else {
            return Ok(Decisions::default());
        };
        let (prefix, now) = (&self.0.prefix, self.now());
        let any = Any {
            question: Question::new(checks, prefix, now),
            expected: Expected::of(checks),
            subject: first.subject,
        };
        self.answer_any(&any).await
    }

    async fn answer_any(&self, any: &Any) -> Result<Decisions, StoreError> {
        let reply = self.send(&any.question, any.subject).await?;
        any.expected.read(reply)
    }

    /// One take, which may share a trip with others.
    async fn answer_take(&self, mut take: Box<Take>) -> Result<Decisions, StoreError> {
        loop {
            let told = match SharedTrips::enter(self, take) {
                // Boxed, as the future of those who wait has room for it, too.
                Turn::Go(trip, take) => return Box::pin(self.go_alone(trip, take)).await,
                Turn::Wait(told) => told.await,
            };
            take = match told {
                Ok(Told::Decided(decision)) => return Ok(decision.into()),
                Ok(Told::OtherForm(take)) => return Box::pin(self.ask_alone(take)).await,
                Ok(Told::Failed(error)) => return Err(error),
                Ok(Told::NotAsked(take)) => take,
                Err(gone) => {
                    return Err(StoreError::with_source(StoreErrorKind::Interrupted, gone));
                }
            }
        }
    }

    async fn go_alone(&self, trip: OwnTrip, take: Box<Take>) -> Result<Decisions, StoreError> {
        let Some(plain) = take.plain else {
            return self.ask_alone(take).await;
        };
        if let Some(reading) = self.ask_plain(&take, plain).await? {
            return Ok(take.decided(reading).into());
        }
        drop(trip);
        self.ask_alone(take).await
    }

    /// One take, by the script for everything.
    async fn ask_alone(&self, take: Box<Take>) -> Result<Decisions, StoreError> {
        let answer = self.ask_any(&[take.check()]).await;
        told(take.noted, answer)
    }

    /// What is read of each of some takes.
    pub(super) async fn ask_together(&self, together: &Together) -> Result<Readings, StoreError> {
        match together {
            Together::Plain(batch) => match self.send(batch, batch.subject()).await {
                Ok(reply) => batch.read(&reply),
                Err(failed) => Err(failed.into()),
            },
            Together::Any(queue) => {
                let reply = self.send(queue, queue.subject()).await?;
                let readings = queue.read(reply)?;
                Ok(readings
                    .into_iter()
                    .map(|reading| Ok(Some(reading)))
                    .collect())
            }
        }
    }

    async fn answer_plain_pack(&self, pack: &PlainPack) -> Result<Decisions, StoreError> {
        let answer = match self.send(pack, pack.subject()).await {
            Ok(reply) => pack.read(&reply),
            Err(Failed::Answer(error)) if is_other_form(&error) => None,
            Err(failed) => return Err(failed.into()),
        };
        match answer {
            Some(decisions) => Ok(decisions),
            None => Box::pin(self.ask_any(&pack.checks())).await,
        }
    }

    /// What is read of a plain take; `None` when its key has another form.
    async fn ask_plain(
        &self,
        take: &Take,
        plain: PlainTake,
    ) -> Result<Option<Reading>, StoreError> {
        let question = Alone::of(take, plain, &self.0.prefix);
        match self.send(&question, take.check().subject).await {
            Ok(reply) => Ok(plain::debt(&reply).map(|debt| plain.read(debt))),
            Err(Failed::Answer(error)) if is_other_form(&error) => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Sends a question, in a cluster one about this subject.
    async fn send(&self, question: &impl Scripted, subject: Subject) -> Result<Value, Failed> {
        match &self.0.servers {
            Servers::One(lane) => lane.send(question).await,
            Servers::Cluster(cluster) => Box::pin(cluster.send(question, subject)).await,
        }
    }

    /// Zero asks the server's clock.
    fn now(&self) -> Micros {
        let clock = self.0.clock.as_ref();
        clock.map_or(Micros::ZERO, |clock| clock.now())
    }

    pub(super) fn recovered(&self, within: Duration) -> Recovered {
        match self.0.servers.clone() {
            Servers::One(lane) => Box::pin(lane.recovered(within)),
            Servers::Cluster(cluster) => Box::pin(cluster.recovered(within)),
        }
    }
}

impl Trip {
    /// The answer. The future may be dropped at any time.
    pub(super) async fn answer(self) -> Result<Decisions, StoreError> {
        let (server, noted) = (&self.server, self.noted);
        let _place = server.0.places.take()?;
        let answer = match self.asked {
            Asked::Nothing => Ok(Decisions::default()),
            Asked::Take(take) => return server.answer_take(take).await,
            Asked::PlainPack(pack) => Box::pin(server.answer_plain_pack(&pack)).await,
            Asked::Any(any) => Box::pin(server.answer_any(&any)).await,
            Asked::Split(parts) => Box::pin(split::ask(server.clone(), parts)).await,
        };
        told(noted.map(|noted| *noted), answer)
    }
}

/// An answer, after the memory of denials was told of it.
fn told(
    noted: Option<Noted>,
    answer: Result<Decisions, StoreError>,
) -> Result<Decisions, StoreError> {
    if let Some(noted) = noted {
        noted.answered(&answer);
    }
    answer
}
