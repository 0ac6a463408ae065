//! `PackBatch`: packs that share a trip, of one or many keys, and what is owed before each of them.

use std::sync::LazyLock;

use redis::{Cmd, Value};
use smallvec::smallvec;

use super::rows::Row;
use super::{BATCH_TEXT, PlainPack};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::redis::error::of_question;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::{bad, by_key, dated_answers};
use crate::store::redis::script::{Script, Scripted};
use crate::store::redis::takes::by_key::ByKey;
use crate::store::redis::takes::msgpack;
use crate::store::redis::takes::names::Names;
use crate::store::redis::takes::plain::MOST_DEBT_US;
use crate::store::redis::takes::plain_takes::{Debts, Owed};
use crate::store::redis::trips::{Batch, Readings};
use crate::time::Micros;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(BATCH_TEXT));

/// Packs that share a trip, by key, each key's in order of arrival.
pub(in crate::store::redis) struct PackBatch {
    /// The subject of the first pack. In a cluster, where it matters, all have the same one.
    subject: Subject,
    now: Micros,
    names: Names,
    /// For each run, the index of its first pack.
    packs: ByKey<usize>,
    rows: Vec<Row>,
    /// The number of takes of each pack.
    takes: Vec<usize>,
}

impl PackBatch {
    /// `None` if there are no packs.
    pub(super) fn of(packs: &[&PlainPack], prefix: &Prefix) -> Option<Self> {
        let subject = packs.first()?.takes.subject();
        let ask_alike = |one: &usize, other: &usize| {
            let [one, other] = [*one, *other].map(|position| &packs[position].takes);
            one.ask_as(other)
        };
        let mut names = Names::with_capacity(packs.len());
        let mut by_key = ByKey::with_capacity(packs.len());
        for (position, pack) in packs.iter().enumerate() {
            if by_key.add(pack.key, |before| ask_alike(before, &position), || position) {
                names.push(&pack.takes.first(), prefix);
            }
        }
        let rows = by_key.rows(ask_alike).into_iter().map(|row| {
            let pack = &packs[row.run.asked].takes;
            Row::of(pack, row.run.times, row.keys)
        });
        let rows = rows.collect();
        Some(Self {
            subject,
            now: packs.iter().map(|pack| pack.takes.now).max()?,
            names,
            rows,
            packs: by_key,
            takes: packs.iter().map(|pack| pack.takes.len()).collect(),
        })
    }
}

/// The debts in an answer about this many takes; `None` if their key has another form.
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

/// The debts, if none is larger than anybody can owe.
fn owed(debts: impl Iterator<Item = u64>) -> Result<Debts, StoreError> {
    let sound = |debt_us| (debt_us < MOST_DEBT_US.unsigned_abs()).then_some(debt_us);
    let debts: Option<Debts> = debts.map(sound).collect();
    debts.ok_or_else(|| bad("no debts"))
}

impl Batch for PackBatch {
    type Read = Owed;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Owed>, StoreError> {
        let (answers, now_us) = dated_answers(reply)?;
        let answers = by_key(answers, self.packs.keys().map(<[_]>::len))?;
        let read = self.packs.places().iter().zip(&self.takes);
        let read = read.map(|(place, takes)| {
            let debts = debts(&answers[place.key()][place.run()], *takes, now_us)?;
            let behind = place.behind;
            Ok(debts.map(|debts| Owed { debts, behind }))
        });
        Ok(read.collect())
    }
}

impl Scripted for PackBatch {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let row_bytes = self.rows.iter().map(Row::bytes).sum();
        let capacity = (6 * self.rows.len(), row_bytes);
        let mut command = self.names.command(verb, script, self.now, capacity);
        self.rows.iter().for_each(|row| row.write_to(&mut command));
        command
    }
}
