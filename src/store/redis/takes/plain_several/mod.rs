//! Plain takes of several keys, possibly about different subjects.

use smallvec::SmallVec;

use super::plain_takes::{Owed, PlainTakes};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::store::Check;
use crate::store::deny_cache::noted::Noted;
use crate::store::redis::keys::Prefix;
use crate::store::redis::server::Server;
use crate::store::redis::trips::{Passenger, SharedTrips, Sharing, StopId, Told};
use crate::time::Micros;

mod batch;
mod states;

use batch::SeveralBatch;
use states::StateId;

pub(super) const TEXT: &str = include_str!("../../../../../lua/plain_several.lua");

/// A question with more takes uses the composed script, as it is much of a trip by itself.
const MOST_TAKES: usize = 64;

/// The question.
pub(in crate::store::redis) struct PlainSeveral {
    /// The state of each take, all different.
    states: SmallVec<[StateId; 5]>,
    takes: PlainTakes,
}

impl PlainSeveral {
    /// `None` if the checks ask for something else.
    pub(in crate::store::redis) fn of(checks: &[Check<'_>], now: Micros) -> Option<Box<Self>> {
        if checks.is_empty() || checks.len() > MOST_TAKES {
            return None;
        }
        let states: SmallVec<[StateId; 5]> = checks.iter().map(StateId::of).collect();
        let mut each = states.iter().enumerate();
        if each.any(|(position, state)| states[..position].contains(state)) {
            return None;
        }
        Some(Box::new(Self {
            states,
            takes: PlainTakes::of(checks, now)?,
        }))
    }

    /// Whether it asks the same of the same states as the other one.
    fn asks_as(&self, other: &Self) -> bool {
        self.states == other.states && self.takes.cost_as(&other.takes)
    }
}

impl Passenger for PlainSeveral {
    fn key(&self) -> Option<u128> {
        None
    }

    fn weight(&self) -> usize {
        self.takes.len()
    }
}

impl Sharing for PlainSeveral {
    type Batch = SeveralBatch;
    type Read = Owed;
    type Decided = Decisions;

    fn trips(server: &Server) -> &SharedTrips<Self> {
        &server.trips().of_several
    }

    /// In a cluster, its checks are about one subject, whose keys are in one slot.
    fn stop(&self) -> StopId {
        StopId(self.takes.subject().to_u128())
    }

    fn noted(&mut self) -> &mut Option<Noted> {
        &mut self.takes.noted
    }

    fn batch(questions: &[&Self], prefix: &Prefix) -> Option<SeveralBatch> {
        SeveralBatch::of(questions, prefix)
    }

    async fn ask_alone(self: Box<Self>, server: &Server) -> Result<Told<Self>, StoreError> {
        let alone = SeveralBatch::of(&[&self], server.prefix());
        let owed = server.ask_one(alone).await?;
        Ok(Told::by(self, owed))
    }

    async fn ask_composed(&mut self, server: &Server) -> Result<Decisions, StoreError> {
        self.takes.ask_composed(server).await
    }

    fn decided(&mut self, owed: Owed) -> Decisions {
        self.takes.decided(owed)
    }
}

#[cfg(test)]
mod tests;
