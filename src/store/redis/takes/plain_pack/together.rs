//! `Together`: packs that share a trip, of one key or of many, and what is owed before each of them.

use std::sync::LazyLock;

use redis::{Cmd, Value};
use smallvec::smallvec;

use super::rows::{Row, Run, Runs, rows};
use super::{BATCH_TEXT, PlainPack};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::redis::error::of_question;
use crate::store::redis::keys::{self, Prefix};
use crate::store::redis::reply::{bad, by_key, dated_answers};
use crate::store::redis::script::{Script, Scripted};
use crate::store::redis::takes::msgpack;
use crate::store::redis::takes::plain::MOST_DEBT_US;
use crate::store::redis::takes::plain_takes::{Debts, Owed};
use crate::store::redis::trips::{AskedTogether, ByFingerprint, FingerprintMap, Readings};
use crate::time::Micros;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(BATCH_TEXT));

/// Packs that share a trip, key by key, those of each in the order in which they came.
pub(in crate::store::redis) struct Together {
    /// Of the first of them. All have the same one where it matters, which is in a cluster.
    subject: Subject,
    now: Micros,
    keys: Vec<Key>,
    rows: Vec<Row>,
    /// Of each pack.
    places: Vec<Place>,
}

/// A key, and what it is asked for.
struct Key {
    name: Vec<u8>,
    runs: Runs,
}

/// Where a pack stands: of which key, in which of its runs, behind how many others.
struct Place {
    key: usize,
    run: usize,
    behind: u32,
    takes: usize,
}

impl Together {
    /// `None` of no packs.
    pub(super) fn of(packs: &[&PlainPack], prefix: &Prefix) -> Option<Self> {
        let subject = packs.first()?.takes.subject();
        let mut keys: Vec<Key> = Vec::with_capacity(packs.len());
        let mut known = FingerprintMap::with_capacity_and_hasher(packs.len(), ByFingerprint);
        let places = packs.iter().enumerate().map(|(position, pack)| {
            let key = *known.entry(pack.key).or_insert_with(|| {
                keys.push(Key {
                    name: prefix.key(&pack.takes.first()),
                    runs: Runs::new(),
                });
                keys.len() - 1
            });
            let (run, behind) = keys[key].add(position, packs);
            Place {
                key,
                run,
                behind,
                takes: pack.takes.len(),
            }
        });
        let places = places.collect();
        Some(Self {
            subject,
            now: packs.iter().map(|pack| pack.takes.now).max()?,
            rows: rows(keys.iter().map(|key| &key.runs), packs),
            keys,
            places,
        })
    }
}

impl Key {
    /// In which run the pack at this position is, behind how many others.
    fn add(&mut self, position: usize, packs: &[&PlainPack]) -> (usize, u32) {
        match self.runs.last_mut() {
            Some(run) if packs[run.first].takes.ask_as(&packs[position].takes) => run.packs += 1,
            _ => self.runs.push(Run {
                first: position,
                packs: 1,
            }),
        }
        let behind = self.runs.last().map_or(0, |run| run.packs - 1);
        (self.runs.len() - 1, behind)
    }
}

/// What is read of an answer about so many takes; `None` when their key has another form.
fn debts(answer: &Value, takes: usize, now_us: u64) -> Result<Option<Debts>, StoreError> {
    match answer {
        Value::Int(0) => Ok(Some(smallvec![0; takes])),
        Value::Int(-1) => Ok(None),
        Value::BulkString(bytes) if bytes.len() == takes * 8 => {
            let (each, _) = bytes.as_chunks();
            owed(each.iter().copied().map(u64::from_be_bytes)).map(Some)
        }
        Value::BulkString(pack) => {
            let states = msgpack::numbers_of(pack, takes);
            let states = states.ok_or_else(|| bad("neither debts nor a pack"))?;
            owed(states.iter().map(|us| us.saturating_sub(now_us))).map(Some)
        }
        Value::ServerError(error) => Err(of_question(error.clone().into())),
        _ => Err(bad("neither debts nor why there are none")),
    }
}

/// The debts, as far as anybody can owe so much.
fn owed(debts: impl Iterator<Item = u64>) -> Result<Debts, StoreError> {
    let sound = |debt_us| (debt_us < MOST_DEBT_US.unsigned_abs()).then_some(debt_us);
    let debts: Option<Debts> = debts.map(sound).collect();
    debts.ok_or_else(|| bad("no debts"))
}

impl AskedTogether for Together {
    type Read = Owed;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Owed>, StoreError> {
        let (answers, now_us) = dated_answers(reply)?;
        let answers = by_key(answers, self.keys.iter().map(|key| key.runs.len()))?;
        let read = self.places.iter().map(|place| {
            let debts = debts(&answers[place.key][place.run], place.takes, now_us)?;
            let behind = place.behind;
            Ok(debts.map(|debts| Owed { debts, behind }))
        });
        Ok(read.collect())
    }
}

impl Scripted for Together {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let row_bytes: usize = self.rows.iter().map(Row::bytes).sum();
        let mut command = Cmd::with_capacity(
            4 + self.keys.len() + 6 * self.rows.len(),
            script.len() + keys::USUAL_LENGTH * (self.keys.len() + 1) + row_bytes,
        );
        command.arg(verb).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(&key.name);
        }
        command.arg(self.now.get());
        self.rows.iter().for_each(|row| row.write_to(&mut command));
        command
    }
}
