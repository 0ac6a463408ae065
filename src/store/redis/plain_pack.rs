//! Plain takes of one subject whose states share a key: further rates of a limit, policies of a group.

use smallvec::SmallVec;

use super::keys::{Prefix, are_together};
use super::server::{Server, told};
use super::shared_trips::{SharedTrips, Trip};
use super::sharing::{Readings, Sharing};
use super::stop::Passenger;
use crate::algorithm::PlainTake;
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::store::Check;
use crate::store::deny_cache::asked::Asked as Noted;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

mod alone;
mod msgpack;
mod rows;
mod together;

use alone::Alone;
use together::Together;

pub(super) const TEXT: &str = include_str!("../../../lua/plain_pack.lua");
pub(super) const BATCH_TEXT: &str = include_str!("../../../lua/plain_pack_batch.lua");

/// Of each take what its state owes.
type Debts = SmallVec<[u64; 8]>;

/// The question.
pub(super) struct PlainPack {
    /// Zero asks the server's clock.
    now: Micros,
    /// One at least.
    takes: Vec<Take>,
    pub(super) noted: Option<Noted>,
}

/// The take of one check.
struct Take {
    check: OwnedCheck,
    plain: PlainTake,
}

/// What was read of a pack.
pub(super) struct Owed {
    /// Before the first of those that came together and ask the same of its key.
    debts: Debts,
    /// So many of them came before it.
    behind: u32,
}

impl PlainPack {
    /// `None` when the checks ask for something else, or of more than one key.
    pub(super) fn of(checks: &[Check<'_>], now: Micros) -> Option<Box<Self>> {
        let (first, others) = checks.split_first()?;
        if !others.iter().all(|other| are_together(first, other)) {
            return None;
        }
        let mut takes = Vec::with_capacity(checks.len());
        for check in checks {
            let plain = PlainTake::of(&check.algorithm, &check.action);
            takes.push(Take {
                plain: plain.filter(|_| !check.is_shadow)?,
                check: OwnedCheck::of(check),
            });
        }
        Some(Box::new(Self {
            now,
            takes,
            noted: None,
        }))
    }

    fn first(&self) -> Check<'_> {
        self.takes[0].check.check()
    }

    /// Whether it asks the same of its key as the other one of its own.
    fn asks_as(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Take, &Take)| {
            one.check.is_of_policy(&other.check)
                && one.plain == other.plain
                && one.check.is_in_group() == other.check.is_in_group()
        };
        let pairs = || self.takes.iter().zip(&other.takes);
        self.takes.len() == other.takes.len() && pairs().all(is_same)
    }
}

impl Passenger for PlainPack {
    /// That of the first of its policies: others about the same key may have another one, and go by the
    /// script's order.
    fn fingerprint(&self) -> u128 {
        self.first().fingerprint()
    }
}

impl Sharing for PlainPack {
    type Together = Together;
    type Read = Owed;
    type Decided = Decisions;

    fn trips(server: &Server) -> &SharedTrips<Self> {
        server.trips_of_packs()
    }

    fn goes_with_other_keys(&self) -> bool {
        true
    }

    fn noted(&mut self) -> Option<&mut Noted> {
        self.noted.as_mut()
    }

    fn together(packs: &[&Self], prefix: &Prefix) -> Option<Together> {
        Together::of(packs, prefix)
    }

    async fn ask(server: &Server, together: &Together) -> Result<Readings<Owed>, StoreError> {
        together.read(&server.send(together, together.subject()).await?)
    }

    async fn ask_alone(
        self: Box<Self>,
        server: &Server,
        trip: Trip<Self>,
    ) -> Result<Decisions, StoreError> {
        let question = Alone::of(&self, server.prefix());
        let reply = server.send(&question, self.first().subject).await?;
        match Alone::read(&reply, self.takes.len())? {
            Some(owed) => Ok(self.decided(owed)),
            None => {
                drop(trip);
                self.ask_otherwise(server).await
            }
        }
    }

    async fn ask_otherwise(self: Box<Self>, server: &Server) -> Result<Decisions, StoreError> {
        let checks: Vec<_> = self.takes.iter().map(|take| take.check.check()).collect();
        let answer = server.ask_any(&checks).await;
        told(self.noted, answer)
    }

    fn decided(self: Box<Self>, owed: Owed) -> Decisions {
        let each = || self.takes.iter().zip(&owed.debts);
        let fitting = each().map(|(take, debt)| take.plain.fitting(*debt)).min();
        let (fitting, behind) = (fitting.unwrap_or_default(), owed.behind.into());
        let decisions = each().map(|(take, debt)| {
            let reading = take.plain.read_after(*debt, fitting.min(behind));
            // None of them is in shadow, or a penalty: all are carried out, or none.
            let check = &take.check;
            check
                .algorithm
                .decide(&reading, &check.action, fitting > behind)
        });
        let decisions: Decisions = decisions.collect();
        if let Some(noted) = self.noted {
            noted.decided(&decisions);
        }
        decisions
    }
}

#[cfg(test)]
mod tests;
