//! Plain takes of one subject whose states share a key: further rates of a limit, policies of a group.

use super::MOST_TRIPS_IF_PLAIN;
use super::plain_takes::{Owed, PlainTakes};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::store::Check;
use crate::store::deny_cache::noted::Noted;
use crate::store::redis::keys::{Prefix, are_together, fingerprint_of_key, is_same_limit};
use crate::store::redis::server::Server;
use crate::store::redis::trips::{Passenger, SharedTrips, Sharing, StopId, Told};
use crate::time::Micros;

mod alone;
mod batch;
mod rows;

use alone::Alone;
use batch::PackBatch;

/// A take needs two slots of a script's stack if its pack is written at once. There are 8 000.
const MOST_TAKES: usize = 1_000;

pub(super) const TEXT: &str = include_str!("../../../../../lua/plain_pack.lua");
pub(super) const BATCH_TEXT: &str = include_str!("../../../../../lua/plain_pack_batch.lua");

/// The question.
pub(in crate::store::redis) struct PlainPack {
    /// Identifies its key.
    key: u128,
    takes: PlainTakes,
}

impl PlainPack {
    /// `None` if the checks ask for something else, have several keys, or are too many.
    pub(in crate::store::redis) fn of(checks: &[Check<'_>], now: Micros) -> Option<Box<Self>> {
        let (first, others) = checks.split_first()?;
        if checks.len() > MOST_TAKES || !others.iter().all(|other| are_together(first, other)) {
            return None;
        }
        let is_of_first =
            |other: &Check<'_>| first.is_shadow == other.is_shadow && is_same_limit(first, other);
        let takes = if others.iter().all(is_of_first) {
            // The rates of one limit, which depend on each other, even in shadow.
            PlainTakes::all_or_none(checks, now)
        } else {
            PlainTakes::of(checks, now)
        };
        Some(Box::new(Self {
            key: fingerprint_of_key(first),
            takes: takes?,
        }))
    }

    /// What is owed; `None` if its key has another form.
    async fn owed(&self, server: &Server) -> Result<Option<Owed>, StoreError> {
        if self.takes.by_themselves().any(|is_by_itself| is_by_itself) {
            // Boxed, as the futures of all others would otherwise need room for it.
            let alone = PackBatch::of(&[self], server.prefix());
            return Box::pin(server.ask_one(alone)).await;
        }
        let question = Alone::of(&self.takes, server.prefix());
        let reply = server.send(&question, self.takes.subject()).await?;
        Alone::read(&reply, self.takes.len())
    }
}

impl Passenger for PlainPack {
    fn key(&self) -> Option<u128> {
        Some(self.key)
    }

    fn weight(&self) -> usize {
        self.takes.len()
    }
}

impl Sharing for PlainPack {
    type Batch = PackBatch;
    type Read = Owed;
    type Decided = Decisions;

    fn trips(server: &Server) -> &SharedTrips<Self> {
        &server.trips().of_packs
    }

    fn stop(&self) -> StopId {
        StopId(self.key)
    }

    fn most_trips_of_all_keys(&self) -> usize {
        MOST_TRIPS_IF_PLAIN
    }

    fn noted(&mut self) -> &mut Option<Noted> {
        &mut self.takes.noted
    }

    fn batch(packs: &[&Self], prefix: &Prefix) -> Option<PackBatch> {
        PackBatch::of(packs, prefix)
    }

    async fn ask_alone(self: Box<Self>, server: &Server) -> Result<Told<Self>, StoreError> {
        let owed = self.owed(server).await?;
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
