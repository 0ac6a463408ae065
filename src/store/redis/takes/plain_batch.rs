//! Plain takes that share a trip, of one key or of many, answered with one integer for each run of
//! equal ones of a key.

use std::sync::LazyLock;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::names::Names;
use super::plain;
use super::take::Take;
use crate::algorithm::{PlainTake, Reading};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::redis::error::of_question;
use crate::store::redis::keys::{self, Prefix};
use crate::store::redis::reply::{answers, by_key};
use crate::store::redis::script::{Script, Scripted};
use crate::store::redis::trips::{AskedTogether, ByFingerprint, FingerprintMap, Readings};
use crate::time::Micros;

pub(super) const TEXT: &str = include_str!("../../../../lua/plain_batch.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// About so long are a key, and a row, with what stands around them: a command is to be made in one
/// piece.
const BYTES_EACH: usize = keys::USUAL_LENGTH;

/// The question: takes in the order in which they came, key by key.
pub(in crate::store::redis) struct PlainBatch {
    /// Of the first of them. All have the same one where it matters, which is in a cluster.
    subject: Subject,
    now: Micros,
    names: Names,
    keys: Vec<Key>,
    /// Of each take.
    places: Vec<Place>,
}

/// What is taken of a key.
struct Key {
    runs: SmallVec<[Run; 1]>,
}

/// Equal takes of a key, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Run {
    take: PlainTake,
    takes: u32,
}

/// Where a take stands: of which key, in which of its runs, behind how many others.
struct Place {
    key: u32,
    run: u32,
    behind: u32,
}

impl PlainBatch {
    /// `None` of no takes.
    pub(super) fn of(takes: &[(&Take, PlainTake)], prefix: &Prefix) -> Option<Self> {
        let (first, _) = takes.first()?;
        let mut batch = Self {
            subject: first.check().subject,
            now: Micros::ZERO,
            names: Names::with_capacity(takes.len()),
            keys: Vec::with_capacity(takes.len()),
            places: Vec::with_capacity(takes.len()),
        };
        let mut positions = FingerprintMap::with_capacity_and_hasher(takes.len(), ByFingerprint);
        for (take, plain) in takes {
            let position = *positions
                .entry(take.fingerprint)
                .or_insert(batch.keys.len());
            batch.now = batch.now.max(take.now);
            if position == batch.keys.len() {
                batch.names.push(&take.check(), prefix);
                batch.keys.push(Key {
                    runs: SmallVec::new(),
                });
            }
            let place = batch.keys[position].add(*plain);
            batch.places.push(Place {
                key: position as u32,
                ..place
            });
        }
        Some(batch)
    }

    /// The rows of the script's arguments: equal runs, and how many keys in a row have one. No keys: the
    /// last one has that run, too.
    fn rows(&self) -> Vec<(Run, usize)> {
        let mut rows: Vec<(Run, usize)> = Vec::new();
        for key in &self.keys {
            for (position, run) in key.runs.iter().enumerate() {
                match rows.last_mut() {
                    Some((last, keys)) if position == 0 && last == run && *keys > 0 => *keys += 1,
                    _ => rows.push((*run, usize::from(position == 0))),
                }
            }
        }
        rows
    }
}

impl AskedTogether for PlainBatch {
    type Read = Reading;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Reading>, StoreError> {
        let debts = by_key(answers(reply)?, self.keys.iter().map(|key| key.runs.len()))?;
        let read = self.places.iter().map(|place| {
            let (key, run) = (place.key as usize, place.run as usize);
            let take = self.keys[key].runs[run].take;
            match &debts[key][run] {
                Value::ServerError(error) => Err(of_question(error.clone().into())),
                debt => {
                    let debt = plain::debt_unless_foreign(debt)?;
                    Ok(debt.map(|debt| take.read_behind(debt, place.behind)))
                }
            }
        });
        Ok(read.collect())
    }
}

impl Key {
    /// Where the take stands among those of the key.
    fn add(&mut self, take: PlainTake) -> Place {
        match self.runs.last_mut() {
            Some(run) if run.take == take => run.takes += 1,
            _ => self.runs.push(Run { take, takes: 1 }),
        }
        Place {
            key: 0,
            run: self.runs.len() as u32 - 1,
            behind: self.runs.last().map_or(0, |run| run.takes - 1),
        }
    }
}

impl Scripted for PlainBatch {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let rows = self.rows();
        let (arguments, bytes) = (
            4 + self.keys.len() + 4 * rows.len(),
            BYTES_EACH * (self.keys.len() + rows.len()),
        );
        let mut command = Cmd::with_capacity(arguments, script.len() + bytes);
        command.arg(verb).arg(script).arg(self.keys.len());
        for name in self.names.iter() {
            command.arg(name);
        }
        command.arg(self.now.get());
        for (Run { take, takes }, keys) in rows {
            command
                .arg(take.cost_us)
                .arg(take.room_us)
                .arg(takes)
                .arg(keys);
        }
        command
    }
}

#[cfg(test)]
mod tests;
