//! `Whole`: a question that takes one script, and how it is answered.

use super::any::Any;
use super::server::Server;
use super::takes::{AnyTakes, PlainPack, PlainSeveral, Take};
use super::trips::{Batch, Readings, SharedTrips, Sharing, Told, Turn};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Check;

/// The questions of one script, from the leanest to the one that can ask anything. Boxed, as all
/// futures of trips have the size of the largest.
pub(super) enum Whole {
    Nothing,
    Take(Box<Take>),
    PlainPack(Box<PlainPack>),
    PlainSeveral(Box<PlainSeveral>),
    AnyTakes(Box<AnyTakes>),
    Any(Box<Any>),
}

impl Server {
    /// The leanest question that can ask these checks; in a cluster, they are of one subject.
    pub(super) fn whole(&self, checks: &[Check<'_>]) -> Whole {
        let now = self.now();
        if let Some(take) = Take::of(checks, now) {
            Whole::Take(take)
        } else if let Some(pack) = PlainPack::of(checks, now) {
            Whole::PlainPack(pack)
        } else if let Some(several) = PlainSeveral::of(checks, now) {
            Whole::PlainSeveral(several)
        } else if let Some(any) = AnyTakes::of(checks, self.prefix(), now) {
            Whole::AnyTakes(any)
        } else {
            let any = Any::of(checks, self.prefix(), now, false);
            any.map_or(Whole::Nothing, |any| Whole::Any(Box::new(any)))
        }
    }

    /// Asks checks of one subject by the leanest script that can.
    pub(super) async fn ask(&self, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
        self.answer(self.whole(checks)).await
    }

    pub(super) async fn answer(&self, asked: Whole) -> Result<Decisions, StoreError> {
        match asked {
            Whole::Nothing => Ok(Decisions::default()),
            Whole::Take(take) => Ok(self.answer_shared(take).await?.into()),
            Whole::PlainPack(pack) => Box::pin(self.answer_shared(pack)).await,
            Whole::PlainSeveral(several) => Box::pin(self.answer_shared(several)).await,
            Whole::AnyTakes(any) => Box::pin(self.answer_shared(any)).await,
            Whole::Any(any) => Box::pin(self.answer_any(&any)).await,
        }
    }

    /// Asks checks of one subject by the composed script.
    pub(super) async fn ask_composed(&self, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
        match Any::of(checks, self.prefix(), self.now(), false) {
            Some(any) => self.answer_any(&any).await,
            None => Ok(Decisions::default()),
        }
    }

    /// Asks checks of one subject about a request that another subject denies: they carry out
    /// nothing but what a penalty counts.
    pub(super) async fn ask_denied(&self, checks: &[Check<'_>]) -> Result<Decisions, StoreError> {
        match Any::of(checks, self.prefix(), self.now(), true) {
            Some(any) => self.answer_any(&any).await,
            None => Ok(Decisions::default()),
        }
    }

    async fn answer_any(&self, any: &Any) -> Result<Decisions, StoreError> {
        let reply = self.send(&any.question, any.subject).await?;
        any.expected.read(reply)
    }

    /// Sends a batch, whose questions share a trip.
    pub(super) async fn ask_batch<T: Batch>(
        &self,
        batch: &T,
    ) -> Result<Readings<T::Read>, StoreError> {
        batch.read(&self.send(batch, batch.subject()).await?)
    }

    /// The same for a single question: its reading, if there is one.
    pub(super) async fn ask_one<T: Batch>(
        &self,
        alone: Option<T>,
    ) -> Result<Option<T::Read>, StoreError> {
        let read = match alone {
            Some(alone) => self.ask_batch(&alone).await?.pop(),
            None => None,
        };
        Ok(read.transpose()?.flatten())
    }

    /// A question that may share a trip with others.
    pub(super) async fn answer_shared<Q: Sharing>(
        &self,
        mut question: Box<Q>,
    ) -> Result<Q::Decided, StoreError> {
        loop {
            let told = match SharedTrips::enter(self, question) {
                Turn::Go(trip, question) => {
                    // Boxed, as the future of waiting questions would otherwise need room for it,
                    // too.
                    let told = Box::pin(question.ask_alone(self)).await;
                    // Lets others go while this question is asked in another way.
                    drop(trip);
                    told?
                }
                Turn::Wait(turned) => {
                    let told = turned.told(self).await;
                    told.map_err(|gone| {
                        // The runtime of the trip is gone.
                        StoreError::with_source(StoreErrorKind::Interrupted, gone).of_this_process()
                    })?
                }
            };
            question = match told {
                Told::Decided(decided, question) => {
                    drop(question);
                    return Ok(decided);
                }
                Told::OtherForm(mut question) => {
                    return Box::pin(question.ask_composed(self)).await;
                }
                Told::Failed(error) => return Err(error),
                Told::NotAsked(question) => question,
            }
        }
    }
}
