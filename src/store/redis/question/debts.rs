//! Fast-path questions about debts, and a batch of them as one script call: `lua/debts.lua`, or
//! `lua/plain.lua` for a single question about one key.

use std::sync::LazyLock;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::key_names::KeyNames;
use super::runs::ByKey;
use super::{Decided, Question};
use crate::algorithm::{FastPath, FixedMicros};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Check;
use crate::store::fingerprints::{ByFingerprint, FingerprintMap};
use crate::store::owned::OwnedCheck;
use crate::store::redis::error::of_question;
use crate::store::redis::keys::{
    Prefix, fingerprint_of_key, fingerprint_of_state, is_in_record, record_id,
};
use crate::store::redis::reply::{bad, dated_answers};
use crate::store::redis::script::{Script, Scripted};
use crate::time::Micros;

const PLAIN_TEXT: &str = include_str!("../../../../lua/plain.lua");
const DEBTS_TEXT: &str = concat!(
    include_str!("../../../../lua/clock.lua"),
    include_str!("../../../../lua/debts.lua"),
    include_str!("../../../../lua/record.lua"),
    include_str!("../../../../lua/several.lua"),
);

/// The scripts that are complete by themselves.
#[cfg(test)]
pub(in crate::store::redis) const TEXTS: [&str; 2] = [PLAIN_TEXT, DEBTS_TEXT];

static PLAIN: LazyLock<Script> = LazyLock::new(|| Script::new(PLAIN_TEXT));
static DEBTS: LazyLock<Script> = LazyLock::new(|| Script::new(DEBTS_TEXT));

/// A question of more checks is much of a batch by itself, so nothing is gained by the fast path.
const MOST_ACQUIRES: usize = 64;
/// The approximate length of an argument row, and of each acquire in it.
const BYTES_A_ROW: usize = 24;

/// The checks of a question, each a fast-path acquire.
pub(in crate::store::redis) struct DebtQuestion {
    keys: Keys,
    acquires: SmallVec<[Acquire; 1]>,
}

/// Where the debts of a question stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// In one key, alone.
    One,
    /// Each in a key of its own.
    Several,
    /// In the record of a group.
    Group,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Acquire {
    price: FastPath,
    /// Whether the question is denied when this does not fit. Shadow checks block nothing.
    is_blocking: bool,
}

/// What a question's keys owed before it.
pub(in crate::store::redis) struct OwedBefore {
    /// Before the first of the equal questions that share a row; `None` for a corrupt value.
    debts: SmallVec<[Option<FixedMicros>; 4]>,
    /// How many of these came before it.
    repeated: u64,
}

impl DebtQuestion {
    /// `None` if the checks ask for anything else.
    pub(super) fn of(checks: &[Check<'_>]) -> Option<Self> {
        let (first, others) = checks.split_first()?;
        if checks.len() > MOST_ACQUIRES {
            return None;
        }
        // The rates of a shadow limit depend on each other. Alone, that makes them as good as
        // enforced.
        let are_of_one_limit = others
            .iter()
            .all(|check| check.is_shadow == first.is_shadow && is_same_limit(first, check));
        let mut acquires = SmallVec::with_capacity(checks.len());
        for check in checks {
            if check.is_shadow && check.policy.further_rate().is_some() && !are_of_one_limit {
                return None;
            }
            acquires.push(Acquire {
                price: FastPath::of(&check.algorithm, &check.action)?,
                is_blocking: are_of_one_limit || !check.is_shadow,
            });
        }
        Some(Self {
            keys: Keys::of(first, others)?,
            acquires,
        })
    }

    pub(super) fn coalescing_key(&self, first: &Check<'_>) -> Option<u128> {
        match self.keys {
            Keys::One => Some(fingerprint_of_state(first)),
            Keys::Group => Some(fingerprint_of_key(first)),
            Keys::Several => None,
        }
    }

    /// The decisions about these checks.
    ///
    /// # Errors
    ///
    /// If the question depends on a corrupt value.
    pub(super) fn decide(
        &self,
        checks: &[OwnedCheck],
        owed: &OwedBefore,
    ) -> Result<Decided, StoreError> {
        let mut admitted = owed.repeated;
        for (acquire, debt) in self.blocking(owed) {
            let debt = debt.ok_or_else(|| StoreError::new(StoreErrorKind::ForeignValue))?;
            admitted = admitted.min(acquire.price.fitting(debt, owed.repeated));
        }
        // Those before it are the same, so if one of them was denied, it is.
        let mut is_admitted = true;
        for (acquire, debt) in self.blocking(owed) {
            let debt = debt.unwrap_or_default();
            is_admitted &= acquire.price.read_after(debt, admitted).fits;
        }
        let each = checks.iter().zip(&self.acquires).zip(&owed.debts);
        let each = each.map(|((check, acquire), debt)| match debt {
            Some(debt) => {
                let before = acquire.price.fitting(*debt, admitted);
                let reading = acquire.price.read_after(*debt, before);
                let is_committed = is_admitted && reading.fits;
                check
                    .algorithm
                    .decide(&reading, &check.action, is_committed)
            }
            None => check.check().failed(StoreErrorKind::ForeignValue),
        });
        Ok(each.collect())
    }

    fn blocking<'a>(
        &'a self,
        owed: &'a OwedBefore,
    ) -> impl Iterator<Item = (&'a Acquire, Option<FixedMicros>)> {
        let each = self.acquires.iter().zip(&owed.debts);
        let blocking = each.filter(|(acquire, _)| acquire.is_blocking);
        blocking.map(|(acquire, debt)| (acquire, *debt))
    }
}

/// Whether both are rates of one limit.
fn is_same_limit(one: &Check<'_>, other: &Check<'_>) -> bool {
    one.policy.name() == other.policy.name() && one.algorithm.name() == other.algorithm.name()
}

impl Keys {
    /// `None` for a mixture, which the composed script evaluates.
    fn of(first: &Check<'_>, others: &[Check<'_>]) -> Option<Self> {
        if is_in_record(first) {
            let key = fingerprint_of_key(first);
            let are_in_it = others.iter().all(|other| fingerprint_of_key(other) == key);
            return are_in_it.then_some(Self::Group);
        }
        if others.is_empty() {
            return Some(Self::One);
        }
        let mut known: SmallVec<[u128; 8]> = SmallVec::new();
        known.push(fingerprint_of_state(first));
        for other in others {
            let state = fingerprint_of_state(other);
            if is_in_record(other) || known.contains(&state) {
                return None;
            }
            known.push(state);
        }
        Some(Self::Several)
    }
}

/// Fast-path questions as one script call, in order of arrival.
pub(in crate::store::redis) struct DebtsBatch {
    now: Micros,
    names: KeyNames,
    rows: Vec<Row>,
    /// For each acquire of questions about several keys the number of its key; empty if each has
    /// the next one.
    places: Vec<u8>,
    /// For each question its part of the reply.
    parts: Vec<Part>,
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

/// Where the answers to a question are in the reply.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    keys: Keys,
    acquires: usize,
    repeated: u32,
}

impl Part {
    fn new(first: usize, debts: &DebtQuestion, repeated: u32) -> Self {
        Self {
            first,
            keys: debts.keys,
            acquires: debts.acquires.len(),
            repeated,
        }
    }
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
                .map(|(_, debts)| Part::new(0, debts, 0))
                .collect(),
            is_plain: false,
        };
        for (question, _) in questions {
            batch.now = batch.now.max(question.now());
        }
        let shared = keys_of_several(questions);
        let (several, by_key) = (0..questions.len()).partition(|&at| {
            let (question, debts) = questions[at];
            match debts.keys {
                Keys::Several => true,
                Keys::One => shared.contains_key(&fingerprint_of_state(&question.first())),
                Keys::Group => false,
            }
        });
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
            parts: vec![Part::new(0, debts, 0)],
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
                keys: debts.keys,
                acquires: debts.acquires.clone(),
                questions: row.keys,
                repeat: row.run.times,
                ids: match debts.keys {
                    Keys::Group => question.checks().iter().flat_map(record_id).collect(),
                    Keys::One | Keys::Several => Vec::new(),
                },
            });
        }
        let (mut firsts, mut answers) = (Vec::with_capacity(by_key.keys().len()), 0);
        for runs in by_key.keys() {
            firsts.push(answers);
            answers += runs.len();
        }
        for (&at, place) in positions.iter().zip(by_key.places()) {
            let first = firsts[place.key()] + place.run();
            self.parts[at] = Part::new(first, questions[at].1, place.repeated);
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
                self.parts[at] = Part::new(answers - acquires, debts, repeat - 1);
                if let Some(row) = self.rows.last_mut() {
                    row.repeat = repeat;
                }
                continue;
            }
            before = Some(at);
            for check in question.checks() {
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
            self.parts[at] = Part::new(answers, debts, 0);
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

    /// What was owed before each question.
    ///
    /// # Errors
    ///
    /// A reply of any other shape.
    pub(in crate::store::redis) fn read(
        &self,
        reply: &Value,
    ) -> Result<Vec<Result<OwedBefore, StoreError>>, StoreError> {
        if self.is_plain {
            return Ok(vec![Ok(OwedBefore {
                debts: SmallVec::from_iter([debt(reply)?]),
                repeated: 0,
            })]);
        }
        let (answers, now_us) = dated_answers(reply)?;
        let last = self.parts.iter().map(Part::end).max();
        if last != Some(answers.len()) {
            return Err(bad("another number of answers"));
        }
        self.parts
            .iter()
            .map(|part| part.read(answers, now_us))
            .collect()
    }
}

impl Part {
    fn end(&self) -> usize {
        match self.keys {
            Keys::One | Keys::Group => self.first + 1,
            Keys::Several => self.first + self.acquires,
        }
    }

    /// # Errors
    ///
    /// A reply of any other shape. An error that concerns this question alone is in the result.
    fn read(
        &self,
        answers: &[Value],
        now_us: u64,
    ) -> Result<Result<OwedBefore, StoreError>, StoreError> {
        let answers = &answers[self.first..self.end()];
        if let Some(Value::ServerError(error)) = answers.first() {
            return Ok(Err(of_question(error.clone().into())));
        }
        let debts = match (self.keys, answers) {
            (Keys::Group, [Value::Int(0)]) => {
                SmallVec::from_elem(Some(FixedMicros::ZERO), self.acquires)
            }
            (Keys::Group, [Value::BulkString(entries)]) => debts_of_record(entries, now_us)?,
            _ => answers.iter().map(debt).collect::<Result<_, _>>()?,
        };
        if debts.len() != self.acquires {
            return Err(bad("another number of debts"));
        }
        let repeated = self.repeated.into();
        Ok(Ok(OwedBefore { debts, repeated }))
    }
}

/// Above any debt, as nobody owes more than 120 years. If a value is not below this, scripts report
/// that it is no debt.
const MOST_DEBT_US: u64 = 1 << 52;

/// A debt, us or us:fraction; `None` for a corrupt value.
///
/// # Errors
///
/// For any other reply: the permits may have been acquired, so they are not asked for again.
fn debt(reply: &Value) -> Result<Option<FixedMicros>, StoreError> {
    let (us, fraction) = match reply {
        Value::Int(-1) => return Ok(None),
        Value::Int(us) => (u64::try_from(*us).ok(), Some(0)),
        Value::BulkString(text) => {
            let text = std::str::from_utf8(text).ok();
            let (us, fraction) = text
                .and_then(|text| text.split_once(':'))
                .unwrap_or_default();
            (us.parse().ok(), fraction.parse().ok())
        }
        _ => (None, None),
    };
    match (us, fraction) {
        (Some(us @ 0..MOST_DEBT_US), Some(fraction)) => Ok(Some(FixedMicros { us, fraction })),
        _ => Err(bad("no debt")),
    }
}

/// The debts in these entries of a record, which tell when nothing is owed any more.
fn debts_of_record(
    entries: &[u8],
    now_us: u64,
) -> Result<SmallVec<[Option<FixedMicros>; 4]>, StoreError> {
    let (entries, []) = entries.as_chunks::<16>() else {
        return Err(bad("no entries of a record"));
    };
    let each = entries.iter().map(|entry| {
        let mut number = 0_u128;
        for byte in entry {
            number = number << 8 | u128::from(*byte);
        }
        let (us, fraction) = (number as u64, (number >> 64) as u32);
        let paid = FixedMicros { us, fraction };
        let debt = paid.saturating_sub(FixedMicros::whole(now_us));
        (debt.us < MOST_DEBT_US).then_some(Some(debt))
    });
    each.collect::<Option<_>>().ok_or_else(|| bad("no debts"))
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
                command.arg(cost.us).arg(room.us).arg(self.now.get());
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
