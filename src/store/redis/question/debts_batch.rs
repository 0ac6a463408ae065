//! `DebtsBatch`: fast-path questions as one script call: `lua/debts.lua`, or `lua/plain.lua` for a
//! single question about one key.

use std::slice;
use std::sync::LazyLock;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::super::keys::KeyNames;
use super::debts::{Acquire, DebtQuestion, Keys};
use super::debts_reply::SlotPart;
use super::runs::ByKey;
use super::{Path, Question};
use crate::algorithm::FastPath;
use crate::error::StoreError;
use crate::store::check::{ByFingerprint, FingerprintMap, OwnedCheck};
use crate::store::redis::keys::{Prefix, fingerprint_of_state, record_id};
use crate::store::redis::reply::{Decided, bad, dated_answers};
use crate::store::redis::script::{Script, Scripted};
use crate::time::Micros;

const PLAIN_TEXT: &str = concat!(
    include_str!("../../../../lua/clock.lua"),
    include_str!("../../../../lua/plain.lua"),
);
const DEBTS_TEXT: &str = concat!(
    include_str!("../../../../lua/clock.lua"),
    include_str!("../../../../lua/usual.lua"),
    include_str!("../../../../lua/debts.lua"),
    include_str!("../../../../lua/several.lua"),
    include_str!("../../../../lua/record.lua"),
    include_str!("../../../../lua/group.lua"),
);

/// The scripts that are complete by themselves.
#[cfg(test)]
pub(in crate::store::redis) const TEXTS: [&str; 2] = [PLAIN_TEXT, DEBTS_TEXT];

static PLAIN: LazyLock<Script> = LazyLock::new(|| Script::new(PLAIN_TEXT));
static DEBTS: LazyLock<Script> = LazyLock::new(|| Script::new(DEBTS_TEXT));

/// The approximate length of an argument row, and of each acquire in it.
const BYTES_A_ROW: usize = 24;

/// Fast-path questions as one script call, in order of arrival.
pub(in crate::store::redis) struct DebtsBatch {
    now: Micros,
    names: KeyNames,
    rows: Vec<Row>,
    /// For each acquire of questions about several keys the number of its key; empty if each has
    /// the next one.
    places: Vec<u8>,
    /// For each question its part of the reply.
    parts: Vec<SlotPart>,
    /// Whether it is a single question about one key.
    is_plain: bool,
}

/// The arguments that some questions have in common.
struct Row {
    keys: Keys,
    acquires: SmallVec<[Acquire; 1]>,
    questions: usize,
    repeat: u32,
    /// Of a group.
    ids: Vec<u8>,
}

impl Row {
    /// Of one question.
    fn of(debts: &DebtQuestion) -> Self {
        Self {
            keys: debts.keys,
            acquires: debts.acquires.clone(),
            questions: 1,
            repeat: 1,
            ids: Vec::new(),
        }
    }

    /// Of one question about several keys, or about one of those of others.
    fn of_several(debts: &DebtQuestion) -> Self {
        Self {
            keys: Keys::Several,
            ..Self::of(debts)
        }
    }

    /// Whether one more question about several keys can be added.
    fn may_be_shared_by(&self, debts: &DebtQuestion) -> bool {
        self.keys == Keys::Several && self.repeat == 1 && self.acquires == debts.acquires
    }

    fn write_to(&self, command: &mut Cmd) {
        command.arg(match self.keys {
            Keys::One => "1",
            Keys::Several => "s",
            Keys::Group => "g",
        });
        command.arg(self.acquires.len()).arg(self.questions);
        command.arg(self.repeat);
        for Acquire { price, is_blocking } in &self.acquires {
            command.arg(price.cost.us).arg(price.cost.fraction);
            command.arg(price.room.us).arg(price.room.fraction);
            command.arg(u8::from(!is_blocking));
        }
        if self.keys == Keys::Group {
            command.arg(&self.ids);
        }
    }
}

impl DebtsBatch {
    /// Of these questions, all of which have this path.
    pub(in crate::store::redis) fn of(
        questions: &[(&Question, &DebtQuestion)],
        prefix: &Prefix,
    ) -> Self {
        if let [(question, debts)] = questions
            && debts.keys == Keys::One
        {
            return Self::of_one(question, debts, prefix);
        }
        let mut batch = Self {
            now: Micros::ZERO,
            names: KeyNames::with_capacity(questions.len()),
            rows: Vec::new(),
            places: Vec::new(),
            parts: questions
                .iter()
                .map(|(_, debts)| SlotPart::new(0, debts, 0))
                .collect(),
            is_plain: false,
        };
        for (question, _) in questions {
            batch.now = batch.now.max(question.now());
        }
        let shared = keys_of_several(questions);
        let (mut by_key, mut several) = (Vec::with_capacity(questions.len()), Vec::new());
        for (at, (question, debts)) in questions.iter().enumerate() {
            let is_with_others = match debts.keys {
                Keys::Several => true,
                Keys::One if shared.is_empty() => false,
                Keys::One => shared.contains_key(&fingerprint_of_state(&question.first())),
                Keys::Group => false,
            };
            let positions = if is_with_others {
                &mut several
            } else {
                &mut by_key
            };
            positions.push(at);
        }
        let answers = batch.add_by_key(questions, by_key, prefix);
        batch.add_several(questions, several, answers, shared, prefix);
        batch
    }

    fn of_one(question: &Question, debts: &DebtQuestion, prefix: &Prefix) -> Self {
        let mut names = KeyNames::with_capacity(1);
        names.push(&question.first(), prefix);
        Self {
            now: question.now(),
            names,
            rows: vec![Row::of(debts)],
            places: Vec::new(),
            parts: vec![SlotPart::new(0, debts, 0)],
            is_plain: true,
        }
    }

    /// Adds questions about one key each. Returns the number of answers to them.
    fn add_by_key(
        &mut self,
        questions: &[(&Question, &DebtQuestion)],
        positions: Vec<usize>,
        prefix: &Prefix,
    ) -> usize {
        let mut by_key = ByKey::with_capacity(positions.len());
        for &at in &positions {
            let (question, debts) = questions[at];
            let first = question.first();
            // A question about one key or a group has one.
            let key = debts.coalescing_key(&first).unwrap_or_default();
            if by_key.add(
                key,
                |before| asks_as(questions[*before], questions[at]),
                || at,
            ) {
                self.names.push(&first, prefix);
            }
        }
        for row in by_key.rows(|one, other| asks_as(questions[*one], questions[*other])) {
            let (question, debts) = questions[row.run.asked];
            self.rows.push(Row {
                questions: row.keys,
                repeat: row.run.times,
                ids: match debts.keys {
                    Keys::Group => question.checks().iter().flat_map(record_id).collect(),
                    Keys::One | Keys::Several => Vec::new(),
                },
                ..Row::of(debts)
            });
        }
        let (mut firsts, mut answers) = (Vec::with_capacity(by_key.keys().len()), 0);
        for runs in by_key.keys() {
            firsts.push(answers);
            answers += runs.len();
        }
        for (&at, place) in positions.iter().zip(by_key.places()) {
            let first = firsts[place.key()] + place.run();
            self.parts[at] = SlotPart::new(first, questions[at].1, place.repeated);
        }
        answers
    }

    /// Adds questions about several keys, whose answers come behind those so far.
    fn add_several(
        &mut self,
        questions: &[(&Question, &DebtQuestion)],
        positions: Vec<usize>,
        mut answers: usize,
        mut numbers: FingerprintMap<u16>,
        prefix: &Prefix,
    ) {
        let mut places: Vec<u16> = Vec::new();
        let mut before: Option<usize> = None;
        for at in positions {
            let (question, debts) = questions[at];
            let is_equal = before.is_some_and(|before| {
                asks_as(questions[before], questions[at])
                    && states(questions[before].0).eq(states(questions[at].0))
            });
            let acquires = debts.acquires.len();
            if let Some(row) = self.rows.last_mut().filter(|_| is_equal) {
                let mut repeat = row.repeat + 1;
                if row.questions > 1 {
                    // The others of the row are not repeated.
                    row.questions -= 1;
                    repeat = 2;
                    self.rows.push(Row::of_several(debts));
                }
                self.parts[at] = SlotPart::new(answers - acquires, debts, repeat - 1);
                if let Some(row) = self.rows.last_mut() {
                    row.repeat = repeat;
                }
                continue;
            }
            before = Some(at);
            for check in question.checks.iter().map(OwnedCheck::check) {
                let number = numbers.entry(fingerprint_of_state(&check)).or_default();
                if *number == 0 {
                    self.names.push(&check, prefix);
                    *number = self.names.len() as u16;
                }
                places.push(*number);
            }
            match self.rows.last_mut() {
                Some(row) if row.may_be_shared_by(debts) => row.questions += 1,
                _ => self.rows.push(Row::of_several(debts)),
            }
            self.parts[at] = SlotPart::new(answers, debts, 0);
            answers += acquires;
        }
        let first = self.names.len() + 1 - numbers.len();
        if !places
            .iter()
            .copied()
            .eq((first..).zip(&places).map(|(number, _)| number as u16))
        {
            self.places = places.into_iter().flat_map(u16::to_be_bytes).collect();
        }
    }

    /// The decisions about each of its questions, or why it failed alone.
    ///
    /// # Errors
    ///
    /// A reply of any other shape.
    pub(in crate::store::redis) fn read(
        &self,
        reply: &Value,
        questions: &[impl AsRef<Question>],
    ) -> Result<Vec<Result<Decided, StoreError>>, StoreError> {
        let alone = slice::from_ref(reply);
        let (answers, now_us) = match self.is_plain {
            true => (alone, 0),
            false => dated_answers(reply)?,
        };
        let last = self.parts.iter().map(SlotPart::end).max();
        if last != Some(answers.len()) {
            return Err(bad("another number of answers"));
        }
        let mut decided = Vec::with_capacity(questions.len());
        for (part, question) in self.parts.iter().zip(questions) {
            let question = question.as_ref();
            let owed = part.read(answers, now_us)?;
            decided.push(owed.and_then(|owed| match &question.path {
                Path::Debts(debts) => debts.decide(&question.checks, &owed),
                Path::Composed { .. } => Err(bad("debts of a question about others")),
            }));
        }
        Ok(decided)
    }
}

impl Scripted for DebtsBatch {
    fn script(&self) -> &Script {
        if self.is_plain { &PLAIN } else { &DEBTS }
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let acquires: usize = self.rows.iter().map(|row| row.acquires.len()).sum();
        let arguments = 1 + 5 * (self.rows.len() + acquires);
        let bytes = self.places.len() + BYTES_A_ROW * arguments;
        let mut command = self.names.command(verb, script, (arguments, bytes));
        match &*self.rows {
            [row] if self.is_plain => {
                let FastPath { cost, room } = row.acquires[0].price;
                command.arg(self.now.get()).arg(cost.us).arg(room.us);
                if cost.fraction > 0 || room.fraction > 0 {
                    command.arg(cost.fraction).arg(room.fraction);
                }
            }
            rows => {
                command.arg(self.now.get()).arg(&self.places);
                rows.iter().for_each(|row| row.write_to(&mut command));
            }
        }
        command
    }
}

/// Whether they ask the same of their keys, whichever these are.
fn asks_as(
    (one, debts): (&Question, &DebtQuestion),
    (other, others): (&Question, &DebtQuestion),
) -> bool {
    let is_alike = debts.keys == others.keys && debts.acquires == others.acquires;
    let are_of_same_policies = || {
        let mut each = one.checks.iter().zip(&other.checks);
        each.all(|(one, other)| one.is_of_policy(other))
    };
    is_alike && (debts.keys != Keys::Group || are_of_same_policies())
}

/// Identifies the states that a question is about.
fn states(question: &Question) -> impl Iterator<Item = u128> {
    let checks = question.checks.iter().map(OwnedCheck::check);
    checks.map(|check| fingerprint_of_state(&check))
}

/// The keys that questions about several keys are about, none of which has a number yet.
fn keys_of_several(questions: &[(&Question, &DebtQuestion)]) -> FingerprintMap<u16> {
    let mut keys = FingerprintMap::with_capacity_and_hasher(0, ByFingerprint);
    for (question, debts) in questions {
        if debts.keys == Keys::Several {
            keys.extend(states(question).map(|state| (state, 0)));
        }
    }
    keys
}
