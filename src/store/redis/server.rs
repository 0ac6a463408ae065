//! `Server`: the servers behind a store, and how a question to them is answered: by the leanest script
//! that can.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::cluster::Cluster;
use super::keys::Prefix;
use super::lane::{Failed, Lane};
use super::places::Places;
use super::plain_pack::PlainPack;
use super::plain_several::PlainSeveral;
use super::reply::Expected;
use super::script::{Question, Scripted};
use super::shared_trips::{SharedTrips, Told, Turn};
use super::sharing::Sharing;
use super::split::{self, Part};
use super::take::Take;
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
    trips_of_takes: SharedTrips<Take>,
    trips_of_packs: SharedTrips<PlainPack>,
    trips_of_several: SharedTrips<PlainSeveral>,
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
    /// Who remembers what is denied; where a question may share a trip, that knows it itself.
    noted: Option<Box<Noted>>,
}

/// What is asked. It is boxed: the size of all trips is that of the largest.
enum Asked {
    Whole(Whole),
    Split(Vec<Part>),
}

/// What one script is asked, from the leanest to what can ask everything.
enum Whole {
    Nothing,
    Take(Box<Take>),
    PlainPack(Box<PlainPack>),
    PlainSeveral(Box<PlainSeveral>),
    Any(Box<Any>),
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
            trips_of_takes: SharedTrips::default(),
            trips_of_packs: SharedTrips::default(),
            trips_of_several: SharedTrips::default(),
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

    pub(super) fn trips_of_takes(&self) -> &SharedTrips<Take> {
        &self.0.trips_of_takes
    }

    pub(super) fn trips_of_packs(&self) -> &SharedTrips<PlainPack> {
        &self.0.trips_of_packs
    }

    pub(super) fn trips_of_several(&self) -> &SharedTrips<PlainSeveral> {
        &self.0.trips_of_several
    }

    pub(super) fn trip(&self, checks: &[Check<'_>], noted: Option<Noted>) -> Trip {
        let mut trip = Trip {
            server: self.clone(),
            asked: self.asked(checks),
            noted: None,
        };
        match &mut trip.asked {
            Asked::Whole(Whole::Take(take)) => take.noted = noted,
            Asked::Whole(Whole::PlainPack(pack)) => pack.is_noted(noted),
            Asked::Whole(Whole::PlainSeveral(several)) => several.is_noted(noted),
            _ => trip.noted = noted.map(Box::new),
        }
        trip
    }

    fn asked(&self, checks: &[Check<'_>]) -> Asked {
        let mut subjects = checks.iter().map(|check| check.subject);
        let first = subjects.next();
        let is_split = matches!(self.0.servers, Servers::Cluster(_))
            && subjects.any(|subject| Some(subject) != first);
        if is_split {
            Asked::Split(split::parts(checks))
        } else {
            Asked::Whole(self.whole(checks))
        }
    }

    fn whole(&self, checks: &[Check<'_>]) -> Whole {
        let Some(first) = checks.first() else {
            return Whole::Nothing;
        };
        let (prefix, now) = (&self.0.prefix, self.now());
        if let Some(take) = Take::of(checks, now) {
            Whole::Take(take)
        } else if let Some(pack) = PlainPack::of(checks, now) {
            Whole::PlainPack(pack)
        } else if let Some(several) = PlainSeveral::of(checks, now) {
            Whole::PlainSeveral(several)
        } else {
            Whole::Any(Box::new(Any {
                question: Question::new(checks, prefix, now),
                expected: Expected::of(checks),
                subject: first.subject,
            }))
        }
    }

    /// Asks checks of one subject by the leanest script that can.
    pub(super) async fn ask(&self, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
        self.answer(self.whole(checks)).await
    }

    async fn answer(&self, asked: Whole) -> Result<Decisions, StoreError> {
        match asked {
            Whole::Nothing => Ok(Decisions::default()),
            Whole::Take(take) => Ok(self.answer_shared(take).await?.into()),
            Whole::PlainPack(pack) => Box::pin(self.answer_shared(pack)).await,
            Whole::PlainSeveral(several) => Box::pin(self.answer_shared(several)).await,
            Whole::Any(any) => Box::pin(self.answer_any(&any)).await,
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

    /// A question that may share a trip with others.
    async fn answer_shared<Q: Sharing>(
        &self,
        mut question: Box<Q>,
    ) -> Result<Q::Decided, StoreError> {
        loop {
            let told = match SharedTrips::enter(self, question) {
                // Boxed, as the future of those who wait has room for it, too.
                Turn::Go(trip, question) => {
                    return Box::pin(question.ask_alone(self, trip)).await;
                }
                Turn::Wait(told) => told.await,
            };
            question = match told {
                Ok(Told::Decided(decided)) => return Ok(decided),
                Ok(Told::OtherForm(question)) => {
                    return Box::pin(question.ask_otherwise(self)).await;
                }
                Ok(Told::Failed(error)) => return Err(error),
                Ok(Told::NotAsked(question)) => question,
                Err(gone) => {
                    return Err(StoreError::with_source(StoreErrorKind::Interrupted, gone));
                }
            }
        }
    }

    /// Sends a question, in a cluster one about this subject.
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
            Asked::Whole(whole) => server.answer(whole).await,
            Asked::Split(parts) => Box::pin(split::ask(server.clone(), parts)).await,
        };
        told(noted.map(|noted| *noted), answer)
    }
}

/// An answer, after the memory of denials was told of it.
pub(super) fn told(
    noted: Option<Noted>,
    answer: Result<Decisions, StoreError>,
) -> Result<Decisions, StoreError> {
    if let Some(noted) = noted {
        noted.answered(&answer);
    }
    answer
}
