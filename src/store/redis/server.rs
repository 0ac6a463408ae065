//! `Server`: the servers behind a store, and how a question to them is answered: by the leanest script
//! that can.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::cluster::Cluster;
use super::coalesce::{Coalescing, Told, Turn};
use super::error::is_other_form;
use super::keys::Prefix;
use super::lane::{Failed, Lane};
use super::places::Places;
use super::plain::{self, Plain};
use super::plain_pack::PlainPack;
use super::queue::Single;
use super::reply::Expected;
use super::script::{Question, Scripted};
use super::split::{self, Part};
use super::take::{Asking, Take, Together};
use crate::algorithm::Reading;
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
    coalescing: Coalescing,
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
    /// Who remembers what is denied.
    noted: Option<Noted>,
}

/// What is asked, from the leanest to what can ask everything. What is rare is boxed: the size of all
/// trips is that of the largest.
#[expect(
    clippy::large_enum_variant,
    reason = "a plain take is what most questions are, and a box an allocation"
)]
enum Asked {
    Nothing,
    Plain(Plain),
    PlainPack(Box<PlainPack>),
    Single(Box<Single>),
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
            coalescing: Coalescing::default(),
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

    pub(super) fn coalescing(&self) -> &Coalescing {
        &self.0.coalescing
    }

    pub(super) fn trip(&self, checks: &[Check<'_>], noted: Option<Noted>) -> Trip {
        Trip {
            server: self.clone(),
            asked: self.asked(checks),
            noted,
        }
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
        } else if let Some(plain) = Plain::of(checks, prefix, now) {
            Asked::Plain(plain)
        } else if let Some(pack) = PlainPack::of(checks, prefix, now) {
            Asked::PlainPack(Box::new(pack))
        } else if let Some(single) = Single::of(checks, now) {
            Asked::Single(Box::new(single))
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
    async fn answer_take(&self, mut take: Take) -> Result<Decisions, StoreError> {
        let take = loop {
            take = match Coalescing::enter(self, take) {
                Turn::Go(_turn, take) => {
                    let Asking::Plain(plain) = &take.asking else {
                        let answer = Box::pin(self.ask_any(&[take.asking.check()])).await;
                        return told(take.noted, answer);
                    };
                    match self.ask_plain(plain, plain.subject()).await? {
                        Some(debt) => {
                            let reading = plain.read(debt);
                            return Ok(take.decided(reading));
                        }
                        None => break take,
                    }
                }
                Turn::Wait(told) => match told.await {
                    Ok(Told::Decided(decisions)) => return Ok(decisions),
                    Ok(Told::OtherForm(take)) => break take,
                    Ok(Told::NotAsked(take)) => take,
                    Ok(Told::Failed(error)) => return Err(error),
                    Err(gone) => {
                        return Err(StoreError::with_source(StoreErrorKind::Interrupted, gone));
                    }
                },
            };
        };
        let answer = Box::pin(self.ask_any(&[take.asking.check()])).await;
        told(take.noted, answer)
    }

    /// What is read of each of some takes; `None` when the key's state has another form.
    pub(super) async fn ask_together(
        &self,
        together: &Together,
    ) -> Result<Option<Vec<Reading>>, StoreError> {
        match together {
            Together::Plain(queue) => {
                let debt = self.ask_plain(queue, queue.subject()).await?;
                Ok(debt.map(|debt| queue.read(debt)))
            }
            Together::Any(queue) => {
                let reply = self.send(queue, queue.subject()).await?;
                queue.read(reply).map(Some)
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

    /// What the key of plain takes owed; `None` when its state has another form.
    async fn ask_plain(
        &self,
        question: &impl Scripted,
        subject: Subject,
    ) -> Result<Option<u64>, StoreError> {
        match self.send(question, subject).await {
            Ok(reply) => Ok(plain::debt(&reply)),
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
            Asked::Plain(plain) => {
                let asking = Asking::Plain(plain);
                return server.answer_take(Take { asking, noted }).await;
            }
            Asked::Single(single) => {
                let asking = Asking::Single(single);
                return Box::pin(server.answer_take(Take { asking, noted })).await;
            }
            Asked::PlainPack(pack) => Box::pin(server.answer_plain_pack(&pack)).await,
            Asked::Any(any) => Box::pin(server.answer_any(&any)).await,
            Asked::Split(parts) => Box::pin(split::ask(server.clone(), parts)).await,
        };
        told(noted, answer)
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
