//! `Batch`: one or more questions as one script call, and what its reply says to each.

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::composed::ComposedBatch;
use super::debts::DebtQuestion;
use super::debts_batch::DebtsBatch;
use super::{Decided, Path, Question};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::deny_cache::noted::Changes;
use crate::store::redis::connection::Failed;
use crate::store::redis::keys::Prefix;
use crate::store::redis::script::{Script, Scripted};
use crate::time::Micros;

pub(in crate::store::redis) struct Batch {
    /// The subject of the first question. In a cluster, where it matters, all have the same one.
    subject: Subject,
    call: Call,
}

enum Call {
    Debts(DebtsBatch),
    Composed(ComposedBatch),
}

impl Batch {
    /// Of these questions, at least one, all of the same script.
    pub(in crate::store::redis) fn of(questions: &[&Question], prefix: &Prefix) -> Self {
        let debts = debts(questions);
        let call = if debts.len() == questions.len() {
            Call::Debts(DebtsBatch::of(&debts, prefix))
        } else {
            let now = questions.iter().map(|question| question.now);
            let checks: Vec<_> = questions.iter().map(|question| question.checks()).collect();
            let each = checks.iter().zip(questions);
            let each = each.map(|(checks, question)| (&**checks, question.is_denied_elsewhere()));
            Call::Composed(ComposedBatch::of(
                each,
                prefix,
                now.max().unwrap_or(Micros::ZERO),
            ))
        };
        Self {
            subject: questions[0].subject(),
            call,
        }
    }

    pub(in crate::store::redis) fn subject(&self) -> Subject {
        self.subject
    }

    /// The answer to each of its questions by the reply, in order: what is cached in the end is the
    /// state after the last of them.
    pub(in crate::store::redis) fn conclude(
        &self,
        questions: &mut [&mut Box<Question>],
        reply: Result<Value, Failed>,
    ) -> Vec<Result<Decided, StoreError>> {
        let mut changes = Changes::of_batch(questions.len());
        let concluded = reply
            .map_err(StoreError::from)
            .and_then(|reply| match &self.call {
                Call::Debts(batch) => {
                    let each = batch.read(&reply)?.into_iter().zip(&mut *questions);
                    let each = each.map(|(owed, question)| match owed {
                        Ok(owed) => question.conclude_debts(&owed, &mut changes),
                        Err(error) => question.failed(error),
                    });
                    Ok(each.collect())
                }
                Call::Composed(batch) => {
                    let mut answers = batch.read(&reply)?;
                    for (answer, question) in answers.iter_mut().zip(&mut *questions) {
                        match answer {
                            Ok(decided) => question.conclude(decided, &mut changes),
                            Err(error) => *answer = question.failed(error.clone()),
                        }
                    }
                    Ok(answers)
                }
            });
        concluded.unwrap_or_else(|error| {
            let each = questions
                .iter()
                .map(|question| question.failed(error.clone()));
            each.collect()
        })
    }
}

fn debts<'a>(questions: &[&'a Question]) -> SmallVec<[(&'a Question, &'a DebtQuestion); 1]> {
    let each = questions
        .iter()
        .filter_map(|question| match &question.path {
            Path::Debts(debts) => Some((*question, debts)),
            Path::Composed { .. } => None,
        });
    each.collect()
}

impl Scripted for Batch {
    fn script(&self) -> &Script {
        match &self.call {
            Call::Debts(batch) => batch.script(),
            Call::Composed(batch) => batch.script(),
        }
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        match &self.call {
            Call::Debts(batch) => batch.command(verb, script),
            Call::Composed(batch) => batch.command(verb, script),
        }
    }
}
