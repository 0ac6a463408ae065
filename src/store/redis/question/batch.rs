//! `Batch`: one or more questions as one script call, and the answer to each from its reply.

use redis::{Cmd, Value};

use super::composed::ComposedBatch;
use super::debts::DebtQuestion;
use super::debts_batch::DebtsBatch;
use super::{Path, Question};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::deny_cache::ticket::Changes;
use crate::store::redis::connection::Failed;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::Decided;
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
    pub(in crate::store::redis) fn of(questions: &[impl AsRef<Question>], prefix: &Prefix) -> Self {
        let debts = debts(questions);
        let each = questions.iter().map(AsRef::as_ref);
        let call = if debts.len() == questions.len() {
            Call::Debts(DebtsBatch::of(&debts, prefix))
        } else {
            let now = each.clone().map(|question| question.now);
            let checks: Vec<_> = each.clone().map(Question::checks).collect();
            let each = checks.iter().zip(each);
            let each = each.map(|(checks, question)| (&**checks, question.is_denied_elsewhere()));
            Call::Composed(ComposedBatch::of(
                each,
                prefix,
                now.max().unwrap_or(Micros::ZERO),
            ))
        };
        Self {
            subject: questions[0].as_ref().subject(),
            call,
        }
    }

    pub(in crate::store::redis) fn subject(&self) -> Subject {
        self.subject
    }

    /// The answer to each of its questions from the reply. In order, so that the cache ends with the
    /// state after the last of them.
    pub(in crate::store::redis) fn conclude(
        &self,
        questions: &[impl AsRef<Question>],
        reply: Result<Value, Failed>,
    ) -> Vec<Result<Decided, StoreError>> {
        let read = reply
            .map_err(StoreError::from)
            .and_then(|reply| match &self.call {
                Call::Debts(batch) => batch.read(&reply, questions),
                Call::Composed(batch) => batch.read(&reply),
            });
        let mut answers = read.unwrap_or_else(|error| vec![Err(error); questions.len()]);
        let mut changes = Changes::of_batch(&answers);
        for (answer, question) in answers.iter_mut().zip(questions) {
            match answer {
                Ok(decided) => question.as_ref().conclude(decided, &mut changes),
                Err(error) => *answer = question.as_ref().failed(error.clone()),
            }
        }
        answers
    }
}

/// Those that are debt questions.
fn debts(questions: &[impl AsRef<Question>]) -> Vec<(&Question, &DebtQuestion)> {
    let mut debts = Vec::with_capacity(questions.len());
    for question in questions {
        if let Path::Debts(of_question) = &question.as_ref().path {
            debts.push((question.as_ref(), of_question));
        }
    }
    debts
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
