//! `SeveralBatch`: questions that share a trip, and what is owed before each of them.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::states::{Place, States};
use super::{PlainSeveral, TEXT};
use crate::algorithm::PlainTake;
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::redis::error::of_question;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::{answers, by_key};
use crate::store::redis::script::{Script, Scripted};
use crate::store::redis::takes::plain;
use crate::store::redis::takes::plain_takes::{Debts, Owed};
use crate::store::redis::trips::{Batch, Readings};
use crate::time::Micros;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// The approximate length of the arguments of a take.
const BYTES_A_TAKE: usize = 40;

/// Questions that share a trip, in order of arrival.
pub(in crate::store::redis) struct SeveralBatch {
    /// The subject of the first question. In a cluster, where it matters, all have the same one.
    subject: Subject,
    now: Micros,
    states: States,
    /// The place of the state of each take of each run.
    places: Vec<Place>,
    rows: Vec<Row>,
    /// The number of takes of each run of equal questions.
    takes_of_runs: Vec<usize>,
    /// For each question its run, and the number of questions before it in the run.
    turns: Vec<(usize, u32)>,
}

/// Runs of equal questions with the same prices and length.
struct Row {
    times: u32,
    runs: usize,
    /// The price of each take of a question, and whether no other take depends on it.
    prices: Vec<(PlainTake, bool)>,
}

/// Equal consecutive questions: the first of them.
struct Run<'a> {
    question: &'a PlainSeveral,
    times: u32,
}

impl SeveralBatch {
    /// `None` if there are no questions.
    pub(super) fn of(questions: &[&PlainSeveral], prefix: &Prefix) -> Option<Self> {
        let (runs, turns) = runs(questions);
        let takes = runs.iter().map(|run| run.question.takes.len()).sum();
        let mut batch = Self {
            subject: questions.first()?.takes.subject(),
            now: questions.iter().map(|question| question.takes.now).max()?,
            states: States::with_capacity(takes),
            places: Vec::with_capacity(takes),
            rows: Vec::new(),
            takes_of_runs: Vec::with_capacity(runs.len()),
            turns,
        };
        let mut before: Option<&Run<'_>> = None;
        for run in &runs {
            let is_alike = before.is_some_and(|before| {
                before.times == run.times && before.question.takes.cost_as(&run.question.takes)
            });
            match batch.rows.last_mut().filter(|_| is_alike) {
                Some(row) => row.runs += 1,
                None => batch.rows.push(Row::of(run)),
            }
            let states = run.question.states.iter().copied();
            for (id, check) in states.zip(run.question.takes.checks()) {
                let place = batch.states.place(id, &check, prefix);
                batch.places.push(place);
            }
            batch.takes_of_runs.push(run.question.takes.len());
            before = Some(run);
        }
        Some(batch)
    }
}

/// The runs of equal questions, and for each question its run, and the number of questions before
/// it in the run.
fn runs<'a>(questions: &[&'a PlainSeveral]) -> (Vec<Run<'a>>, Vec<(usize, u32)>) {
    let mut runs: Vec<Run<'a>> = Vec::with_capacity(questions.len());
    let mut turns = Vec::with_capacity(questions.len());
    for &question in questions {
        match runs.last_mut() {
            Some(run) if run.question.asks_as(question) => run.times += 1,
            _ => runs.push(Run { question, times: 1 }),
        }
        let behind = runs.last().map_or(0, |run| run.times - 1);
        turns.push((runs.len() - 1, behind));
    }
    (runs, turns)
}

impl Row {
    fn of(run: &Run<'_>) -> Self {
        let takes = &run.question.takes;
        Self {
            times: run.times,
            runs: 1,
            prices: takes.prices().zip(takes.by_themselves()).collect(),
        }
    }
}

impl Batch for SeveralBatch {
    type Read = Owed;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Owed>, StoreError> {
        let answers = by_key(answers(reply)?, self.takes_of_runs.iter().copied())?;
        let read = self.turns.iter().map(|(run, behind)| {
            let answer = answers[*run];
            if let Some(Value::ServerError(error)) = answer.first() {
                return Err(of_question(error.clone().into()));
            }
            let debts = answer.iter().map(plain::debt_unless_foreign);
            let debts = debts.collect::<Result<Option<Debts>, _>>()?;
            Ok(debts.map(|debts| Owed {
                debts,
                behind: *behind,
            }))
        });
        Ok(read.collect())
    }
}

impl Scripted for SeveralBatch {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let takes: usize = self.rows.iter().map(|row| row.prices.len() + 1).sum();
        let (names, packs) = (self.states.names(), self.states.packs());
        let capacity = (2 + 3 * takes, packs.len() + BYTES_A_TAKE * takes);
        let mut command = names.command(verb, script, self.now, capacity);
        command.arg(self.states.numbers(&self.places)).arg(packs);
        for row in &self.rows {
            command.arg(row.prices.len()).arg(row.runs).arg(row.times);
            for (price, is_by_itself) in &row.prices {
                command.arg(price.cost_us).arg(price.room_us);
                command.arg(u8::from(*is_by_itself));
            }
        }
        command
    }
}
