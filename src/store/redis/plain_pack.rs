//! Plain takes of one subject whose states share a key: further rates of a limit, policies of a group.

use std::sync::LazyLock;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::error::of_question;
use super::keys::{Prefix, are_together, field};
use super::plain::debt;
use super::reply::bad;
use super::script::{Script, Scripted};
use super::server::{Server, told};
use super::shared_trips::{SharedTrips, Trip};
use super::sharing::{Readings, Sharing};
use super::stop::Passenger;
use crate::algorithm::{PlainTake, Reading, decide};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::Check;
use crate::store::deny_cache::asked::Asked as Noted;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

pub(super) const TEXT: &str = include_str!("../../../lua/plain_pack.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// The question.
pub(super) struct PlainPack {
    /// Zero asks the server's clock.
    now: Micros,
    takes: SmallVec<[PlainTake; 4]>,
    checks: SmallVec<[OwnedCheck; 4]>,
    pub(super) noted: Option<Noted>,
}

/// Some of them, as they are asked: of each its key, and its takes as the script reads them.
pub(super) struct Together {
    subject: Subject,
    now: Micros,
    packs: Vec<(String, Vec<u8>)>,
    /// How many takes each has.
    lengths: Vec<usize>,
}

impl PlainPack {
    /// `None` when the checks ask for something else, or of more than one key.
    pub(super) fn of(checks: &[Check<'_>], now: Micros) -> Option<Box<Self>> {
        let (first, others) = checks.split_first()?;
        if !others.iter().all(|other| are_together(first, other)) {
            return None;
        }
        let takes = checks.iter().map(|check| {
            let take = PlainTake::of(&check.algorithm, &check.action);
            take.filter(|_| !check.is_shadow)
        });
        Some(Box::new(Self {
            now,
            takes: takes.collect::<Option<_>>()?,
            checks: checks.iter().map(OwnedCheck::of).collect(),
            noted: None,
        }))
    }

    fn checks(&self) -> SmallVec<[Check<'_>; 4]> {
        self.checks.iter().map(OwnedCheck::check).collect()
    }

    fn packed(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(self.takes.len() * 48);
        msgpack::array_of(&mut packed, self.takes.len() * 3);
        for (check, take) in self.checks.iter().zip(&self.takes) {
            msgpack::text(&mut packed, &field(&check.check()));
            msgpack::number(&mut packed, take.cost_us);
            msgpack::number(&mut packed, take.room_us);
        }
        packed
    }
}

impl Passenger for PlainPack {
    /// That of the first of its policies: others about the same key may have another one, and go by the
    /// script's order.
    fn fingerprint(&self) -> u128 {
        self.checks[0].check().fingerprint()
    }
}

impl Sharing for PlainPack {
    type Together = Together;
    type Read = SmallVec<[u64; 4]>;
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
        let first = packs.first()?.checks[0].check();
        let keyed = packs.iter().map(|pack| {
            let check = pack.checks[0].check();
            (prefix.key(&check), pack.packed())
        });
        Some(Together {
            subject: first.subject,
            now: packs.iter().map(|pack| pack.now).max()?,
            packs: keyed.collect(),
            lengths: packs.iter().map(|pack| pack.takes.len()).collect(),
        })
    }

    async fn ask(server: &Server, together: &Together) -> Result<Readings<Self::Read>, StoreError> {
        together.read(&server.send(together, together.subject).await?)
    }

    async fn ask_alone(
        self: Box<Self>,
        server: &Server,
        trip: Trip<Self>,
    ) -> Result<Decisions, StoreError> {
        let read = match Self::together(&[&self], server.prefix()) {
            Some(alone) => Self::ask(server, &alone).await?.pop(),
            None => None,
        };
        match read.transpose()?.flatten() {
            Some(debts) => Ok(self.decided(debts)),
            None => {
                drop(trip);
                self.ask_otherwise(server).await
            }
        }
    }

    async fn ask_otherwise(self: Box<Self>, server: &Server) -> Result<Decisions, StoreError> {
        let answer = server.ask_any(&self.checks()).await;
        told(self.noted, answer)
    }

    fn decided(self: Box<Self>, debts: Self::Read) -> Decisions {
        let readings = debts.iter().zip(&self.takes);
        let readings: SmallVec<[Reading; 4]> =
            readings.map(|(debt, take)| take.read(*debt)).collect();
        let decisions = decide(self.checks().iter().map(Check::ask), &readings);
        if let Some(noted) = self.noted {
            noted.decided(&decisions);
        }
        decisions
    }
}

impl Together {
    /// What is read of each.
    ///
    /// # Errors
    ///
    /// A reply of any other shape; and of one, that the server does not write its key.
    fn read(&self, reply: &Value) -> Result<Readings<SmallVec<[u64; 4]>>, StoreError> {
        let Value::Array(answers) = reply else {
            return Err(bad("no array"));
        };
        if answers.len() != self.lengths.len() {
            return Err(bad("an array of another length"));
        }
        let each = answers.iter().zip(&self.lengths);
        let each = each.map(|(answer, length)| match answer {
            Value::Array(debts) if debts.len() == *length => Ok(debts.iter().map(debt).collect()),
            Value::Int(-1) => Ok(None),
            Value::ServerError(error) => Err(of_question(error.clone().into())),
            _ => Err(bad("neither debts nor why there are none")),
        });
        Ok(each.collect())
    }
}

impl Scripted for Together {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.packs.len());
        for (key, _) in &self.packs {
            command.arg(key);
        }
        command.arg(self.now.get());
        for (_, takes) in &self.packs {
            command.arg(takes);
        }
        command
    }
}

/// As much of the format as the takes need: <https://github.com/msgpack/msgpack/blob/master/spec.md>.
mod msgpack {
    pub(super) fn array_of(to: &mut Vec<u8>, entries: usize) {
        to.push(0xdd);
        to.extend(u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
    }

    pub(super) fn text(to: &mut Vec<u8>, text: &str) {
        to.push(0xdb);
        to.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        to.extend(text.as_bytes());
    }

    pub(super) fn number(to: &mut Vec<u8>, number: u64) {
        to.push(0xcf);
        to.extend(number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
