//! Questions that the composed script evaluates, as one call: any algorithms and actions.
//!
//! Questions about the same keys follow each other, and equal ones are one run. Equal runs about
//! different keys share their arguments. Questions with some, but not all keys in common keep their
//! order.

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::super::keys::KeyNames;
use super::asked::Asked;
use super::runs::{ByKey, Run};
use crate::algorithm::Reading;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Check;
use crate::store::check::{ByFingerprint, FingerprintMap, FingerprintSet};
use crate::store::redis::keys::{Prefix, fingerprint_of_state};
use crate::store::redis::reply::{Decided, Row, Rows, bad};
use crate::store::redis::script::{Parts, Script, Scripted};
use crate::time::Micros;

pub(in crate::store::redis) struct ComposedBatch {
    parts: Parts,
    now: Micros,
    names: KeyNames,
    questions: ByKey<Asked>,
}

impl ComposedBatch {
    /// Of questions with the same parts, in order of arrival: the checks of each, and whether a check
    /// in another slot denies. For `now`, zero asks the server's clock.
    pub(in crate::store::redis) fn of<'a>(
        questions: impl Iterator<Item = (&'a [Check<'a>], bool)>,
        prefix: &Prefix,
        now: Micros,
    ) -> Self {
        let questions: Vec<_> = questions.collect();
        let keys = keys_of_runs(&questions);
        let mut batch = Self {
            parts: Parts::of(questions.first().map_or(&[], |(checks, _)| *checks)),
            now,
            names: KeyNames::with_capacity(questions.len()),
            questions: ByKey::with_capacity(questions.len()),
        };
        for ((checks, is_denied_elsewhere), key) in questions.into_iter().zip(keys) {
            let is_new = batch.questions.add(
                key,
                |before| before.is_of(checks, is_denied_elsewhere),
                || Asked::of(checks, is_denied_elsewhere),
            );
            if is_new {
                checks
                    .iter()
                    .for_each(|check| batch.names.push(check, prefix));
            }
        }
        batch
    }

    /// The decisions about each question in order, or why it failed alone.
    ///
    /// # Errors
    ///
    /// A reply of any other shape.
    pub(in crate::store::redis) fn read(
        &self,
        reply: &Value,
    ) -> Result<Vec<Result<Decided, StoreError>>, StoreError> {
        let mut rows = Rows::of(reply)?;
        let mut answers = Vec::with_capacity(self.questions.keys().len());
        for runs in self.questions.keys() {
            answers.push(read_runs(runs, &mut rows)?.into_iter());
        }
        rows.end()?;
        let places = self.questions.places().iter();
        let each = places.map(|place| answers[place.key()].next().ok_or_else(another_number));
        each.collect()
    }
}

/// For each question the fingerprint of the keys whose questions follow each other.
fn keys_of_runs(questions: &[(&[Check<'_>], bool)]) -> Vec<u128> {
    let sets = questions.iter().map(|(checks, _)| {
        let states = checks.iter().map(fingerprint_of_state);
        states.fold(0, |set: u128, state| set.rotate_left(7) ^ state)
    });
    let mut sets: Vec<u128> = sets.collect();
    if questions.iter().all(|(checks, _)| checks.len() == 1) {
        return sets;
    }
    // Questions with some, but not all states in common keep their order of arrival.
    let mut set_of = FingerprintMap::with_capacity_and_hasher(sets.len(), ByFingerprint);
    let mut overlapping = FingerprintSet::default();
    for ((checks, _), set) in questions.iter().zip(&sets) {
        for state in checks.iter().map(fingerprint_of_state) {
            let first = *set_of.entry(state).or_insert(*set);
            if first != *set {
                overlapping.extend([first, *set]);
            }
        }
    }
    let (mut last, mut changes) = (0, 0);
    for set in sets.iter_mut().filter(|set| overlapping.contains(*set)) {
        if *set != last {
            (last, changes) = (*set, changes + 1);
        }
        *set = set.wrapping_add(changes);
    }
    sets
}

/// The answers to the questions about one set of keys.
type Answers = Vec<Result<Decided, StoreError>>;

fn read_runs(runs: &[Run<Asked>], rows: &mut Rows<'_>) -> Result<Answers, StoreError> {
    let mut answers = Vec::new();
    for chain in runs.chunk_by(|run, next| next.asked.differs_in_cost_alone(&run.asked)) {
        match chain {
            [run] if run.asked.single().is_none() => read_several(run, rows, &mut answers)?,
            chain => read_singles(chain, rows, &mut answers)?,
        }
    }
    Ok(answers)
}

fn read_several(
    Run { asked, times }: &Run<Asked>,
    rows: &mut Rows<'_>,
    answers: &mut Answers,
) -> Result<(), StoreError> {
    for left in (1..=*times as usize).rev() {
        if let Some(error) = rows.failure() {
            answers.push(Err(error));
            continue;
        }
        let (decisions, are_alike_behind) = asked.read(rows)?;
        if are_alike_behind {
            answers.extend(std::iter::repeat_n(Ok(decisions), left));
            break;
        }
        answers.push(Ok(decisions));
    }
    Ok(())
}

impl Asked {
    /// The decisions by the next rows, and whether an equal question behind it is decided alike.
    fn read(&self, rows: &mut Rows<'_>) -> Result<(Decided, bool), StoreError> {
        let mut unanswered: SmallVec<[(usize, StoreErrorKind); 1]> = SmallVec::new();
        let mut readings: SmallVec<[Reading; 4]> = SmallVec::new();
        let mut is_denied = self.is_denied_elsewhere;
        for (position, check) in self.checks.iter().enumerate() {
            let row = rows.next()?;
            let fits = match row.code() {
                fits @ (0 | 1) => fits == 1,
                code if check.is_shadow => {
                    let kind = failure(code).ok_or_else(|| bad("an unknown failure"))?;
                    unanswered.push((position, kind));
                    // It affects no other check, and penalties do not count it as a denial.
                    true
                }
                _ => return Err(bad("neither yes nor no")),
            };
            is_denied |= !fits && !check.is_shadow;
            readings.push(row.reading(fits));
        }
        let mut decisions = self.decide(&readings);
        for (position, kind) in unanswered {
            decisions.fail_open(position, kind);
        }
        let decided = Decided::from_slice(&decisions);
        Ok((decided, is_denied && !self.has_penalty()))
    }
}

/// Runs of single checks that differ in their cost alone.
fn read_singles(
    chain: &[Run<Asked>],
    rows: &mut Rows<'_>,
    answers: &mut Answers,
) -> Result<(), StoreError> {
    // How many of the acquires that were granted in one step are not answered yet, and how long until a
    // permit comes back after the last of them.
    let (mut together, mut next) = (0, Micros::ZERO);
    // The reading for the previous acquire, and its permits.
    let mut before: Option<(Reading, u64)> = None;
    for Run { asked, times } in chain {
        if together == 0
            && let Some(error) = rows.failure()
        {
            answers.extend(std::iter::repeat_n(Err(error), *times as usize));
            before = None;
            continue;
        }
        for left in (1..=*times as usize).rev() {
            if together == 0 {
                let row: Row = rows.next()?;
                match row.code() {
                    fits @ (0 | 1) => {
                        let reading = row.reading(fits == 1);
                        let decided = Decided::from([asked.decide_single(&reading)]);
                        if fits == 0 {
                            // The rest of the run is denied alike.
                            answers.extend(std::iter::repeat_n(Ok(decided), left));
                            before = None;
                            break;
                        }
                        answers.push(Ok(decided));
                        before = Some((reading, asked.checks[0].action.acquires()));
                        continue;
                    }
                    2 => (together, next) = row.together(),
                    _ => return Err(bad("neither yes nor no")),
                }
            }
            let (Some((reading, taken)), 1..) = (before, together) else {
                return Err(another_number());
            };
            together -= 1;
            let check = &asked.checks[0];
            let mut reading = check.algorithm.behind(&reading, taken);
            if together == 0 {
                reading.next = next;
            }
            answers.push(Ok(Decided::from([asked.decide_single(&reading)])));
            before = Some((reading, check.action.acquires()));
        }
    }
    match together {
        0 => Ok(()),
        _ => Err(another_number()),
    }
}

fn another_number() -> StoreError {
    bad("other rows than there are questions")
}

/// The kind of a failure, in place of yes or no, of a shadow check: a corrupt value, or a server
/// without memory, without the permission, or that refused.
fn failure(code: u64) -> Option<StoreErrorKind> {
    match code {
        2 => Some(StoreErrorKind::CorruptValue),
        3 => Some(StoreErrorKind::Busy),
        4 => Some(StoreErrorKind::Full),
        5 => Some(StoreErrorKind::Configuration),
        _ => None,
    }
}

impl Scripted for ComposedBatch {
    fn script(&self) -> &Script {
        &self.parts.script().script
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let composed = self.parts.script();
        let rows = self.questions.rows(Asked::eq);
        let checks: usize = rows.iter().map(|row| row.run.asked.checks.len()).sum();
        let arguments = 1 + 5 * rows.len() + composed.stride * checks;
        let mut command = self
            .names
            .command(verb, script, (arguments, 12 * arguments));
        command.arg(self.now.get());
        let mut before: Option<&Asked> = None;
        for row in rows {
            let asked = &row.run.asked;
            command.arg(asked.checks.len());
            match before {
                Some(before) if row.keys == 0 && asked.differs_in_cost_alone(before) => {
                    command.arg(-1)
                }
                _ => command.arg(row.keys),
            };
            command
                .arg(row.run.times)
                .arg(u8::from(asked.is_denied_elsewhere))
                .arg(asked.most());
            for check in &asked.checks {
                check.write_to(&mut command, composed);
            }
            before = Some(asked);
        }
        command
    }
}
