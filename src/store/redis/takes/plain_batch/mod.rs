//! Plain takes that share a trip, of one or many keys, answered with one integer for each run of
//! equal takes of a key; and takes that would be plain if their rates needed no fraction.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::by_key::{ByKey, Row};
use super::names::Names;
use super::plain;
use super::take::Take;
use crate::algorithm::{PlainTake, Reading, ScaledTake};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::redis::error::of_question;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::{answers, by_key};
use crate::store::redis::script::{Script, Scripted};
use crate::store::redis::trips::{Batch, Readings};
use crate::time::Micros;

pub(super) const TEXT: &str = include_str!("../../../../../lua/plain_batch.lua");
pub(super) const SCALED_TEXT: &str = include_str!("../../../../../lua/scaled_batch.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));
static SCALED_SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SCALED_TEXT));

/// The approximate length of a row.
const BYTES_A_ROW: usize = 80;

/// Takes in order of arrival, by key.
pub(in crate::store::redis) struct PlainBatch {
    /// The subject of the first take. In a cluster, where it matters, all have the same one.
    subject: Subject,
    now: Micros,
    names: Names,
    takes: ByKey<ScaledTake>,
    /// Whether any of their rates needs a fraction.
    is_scaled: bool,
}

impl PlainBatch {
    /// `None` if there are no takes.
    pub(super) fn of(takes: &[(&Take, ScaledTake)], prefix: &Prefix) -> Option<Self> {
        let (first, _) = takes.first()?;
        let mut batch = Self {
            subject: first.check().subject,
            now: Micros::ZERO,
            names: Names::with_capacity(takes.len()),
            takes: ByKey::with_capacity(takes.len()),
            is_scaled: false,
        };
        for (take, scaled) in takes {
            batch.now = batch.now.max(take.now);
            batch.is_scaled |= scaled.plain().is_none();
            let key = take.fingerprint;
            if batch.takes.add(key, |before| before == scaled, || *scaled) {
                batch.names.push(&take.check(), prefix);
            }
        }
        Some(batch)
    }
}

impl Batch for PlainBatch {
    type Read = Reading;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Reading>, StoreError> {
        let debts = by_key(answers(reply)?, self.takes.keys().map(<[_]>::len))?;
        let read = self
            .takes
            .places()
            .iter()
            .map(|place| match &debts[place.key()][place.run()] {
                Value::ServerError(error) => Err(of_question(error.clone().into())),
                debt => {
                    let debt = plain::debt_unless_foreign(debt)?;
                    let take = self.takes.asked(*place);
                    Ok(debt.map(|debt| take.read_behind(debt, place.behind)))
                }
            });
        Ok(read.collect())
    }
}

impl Scripted for PlainBatch {
    fn script(&self) -> &Script {
        if self.is_scaled {
            &SCALED_SCRIPT
        } else {
            &SCRIPT
        }
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let rows = self.takes.rows(ScaledTake::eq);
        let capacity = (5 * rows.len(), BYTES_A_ROW * rows.len());
        let mut command = self.names.command(verb, script, self.now, capacity);
        for Row { run, keys } in rows {
            let ScaledTake { scale, parts } = run.asked;
            let PlainTake { cost_us, room_us } = parts;
            if self.is_scaled {
                command.arg(scale);
            }
            command.arg(cost_us).arg(room_us).arg(run.times).arg(keys);
        }
        command
    }
}

#[cfg(test)]
mod tests;
