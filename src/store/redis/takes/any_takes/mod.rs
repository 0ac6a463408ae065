//! `AnyTakes`: takes under any limits, and several such questions as one.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::WEIGHT_UNLESS_PLAIN;
use crate::algorithm::Action;
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::Check;
use crate::store::deny_cache::noted::Noted;
use crate::store::redis::any::Any;
use crate::store::redis::error::of_question;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::{bad, dated_answers};
use crate::store::redis::script::{Question, Script, Scripted};
use crate::store::redis::server::Server;
use crate::store::redis::trips::{Batch, Passenger, Readings, SharedTrips, Sharing, StopId, Told};
use crate::time::Micros;

/// Takes by some checks, none of them of a lease; in a cluster, about one subject.
pub(in crate::store::redis) struct AnyTakes {
    asked: Arc<Any>,
    noted: Option<Noted>,
}

impl AnyTakes {
    /// `None` if the checks ask for something else.
    pub(in crate::store::redis) fn of(
        checks: &[Check<'_>],
        prefix: &Prefix,
        now: Micros,
    ) -> Option<Box<Self>> {
        let takes_for_good_or_not = |check: &Check<'_>| {
            matches!(check.action, Action::Take(take) if take.lease.is_none())
                && check.algorithm.lease().is_none()
        };
        if !checks.iter().all(takes_for_good_or_not) {
            return None;
        }
        let asked = Arc::new(Any::of(checks, prefix, now, false)?);
        Some(Box::new(Self { asked, noted: None }))
    }
}

impl Passenger for AnyTakes {
    /// All of its keys have to be on one trip, and may be on another one at the same time.
    fn key(&self) -> Option<u128> {
        None
    }

    fn weight(&self) -> usize {
        self.asked.expected.checks() * WEIGHT_UNLESS_PLAIN
    }
}

impl Sharing for AnyTakes {
    type Batch = AnyBatch;
    type Read = Decisions;
    type Decided = Decisions;

    fn trips(server: &Server) -> &SharedTrips<Self> {
        &server.trips().of_any_takes
    }

    /// In a cluster, its checks are about one subject, whose keys are in one slot.
    fn stop(&self) -> StopId {
        let StopId(script) = self.stop_of_all_keys();
        StopId(self.asked.subject.to_u128() ^ script)
    }

    fn stop_of_all_keys(&self) -> StopId {
        StopId::of_all_keys(self.asked.question.parts())
    }

    fn noted(&mut self) -> &mut Option<Noted> {
        &mut self.noted
    }

    fn batch(questions: &[&Self], _: &Prefix) -> Option<AnyBatch> {
        let each = questions.iter().map(|question| Arc::clone(&question.asked));
        let batch = AnyBatch(each.collect());
        (!batch.0.is_empty()).then_some(batch)
    }

    async fn ask_alone(mut self: Box<Self>, server: &Server) -> Result<Told<Self>, StoreError> {
        let decisions = self.ask_composed(server).await?;
        Ok(Told::Decided(decisions, self))
    }

    /// There is no other script for it.
    async fn ask_composed(&mut self, server: &Server) -> Result<Decisions, StoreError> {
        let alone = Self::batch(&[&*self], server.prefix());
        let decisions = server.ask_one(alone).await?;
        Ok(self.decided(decisions.ok_or_else(|| bad("no row"))?))
    }

    fn decided(&mut self, decisions: Decisions) -> Decisions {
        if let Some(noted) = self.noted.take() {
            noted.decided(&decisions);
        }
        decisions
    }
}

/// Questions of one script call, in order of arrival.
pub(in crate::store::redis) struct AnyBatch(Vec<Arc<Any>>);

impl AnyBatch {
    fn questions(&self) -> impl Iterator<Item = &Question> + Clone {
        self.0.iter().map(|asked| &asked.question)
    }
}

impl Scripted for AnyBatch {
    fn script(&self) -> &Script {
        self.0[0].question.script()
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        Question::command_of(self.questions(), verb, script)
    }
}

impl Batch for AnyBatch {
    type Read = Decisions;

    fn subject(&self) -> Subject {
        self.0[0].subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Decisions>, StoreError> {
        let (mut left, at) = dated_answers(reply)?;
        let mut readings = Vec::with_capacity(self.0.len());
        for asked in &self.0 {
            if let [Value::ServerError(error), behind @ ..] = left {
                readings.push(Err(of_question(error.clone().into())));
                left = behind;
                continue;
            }
            let (rows, behind) = asked.expected.split(left)?;
            readings.push(asked.expected.read_rows(rows, at).map(Some));
            left = behind;
        }
        match left {
            [] => Ok(readings),
            _ => Err(bad("too many rows")),
        }
    }
}

#[cfg(test)]
mod tests;
