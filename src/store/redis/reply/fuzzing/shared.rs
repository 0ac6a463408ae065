//! One reply for questions that share a batch, for each kind of question.

use redis::Value;

use crate::algorithm::Action;
use crate::limit::Limit;
use crate::store::redis::keys::Prefix;
use crate::store::redis::question::{Batch, Question};
use crate::store::{Check, PolicyId};
use crate::time::{HOUR, Micros, SECOND};

/// Three questions, two of them alike: about two subjects, or about one.
pub(super) fn read(choice: u8, reply: &Value) {
    let policies = ["one", "two"].map(PolicyId::new);
    let grouped = policies.clone().map(|policy| policy.in_group("group"));
    let subjects = [0_u64, 0, u64::from(choice % 2)];
    let period = if choice.is_multiple_of(3) { 3 } else { 1 };
    let debt = Limit::gcra(period, SECOND).burst(1 + u64::from(choice));
    let window = Limit::fixed_window(7, HOUR);
    for limit in [debt, window] {
        ask(
            reply,
            subjects.map(|subject| vec![check(&policies[0], subject, limit)]),
        );
        ask(
            reply,
            subjects.map(|subject| both(&policies, subject, [debt, limit])),
        );
        ask(
            reply,
            subjects.map(|subject| both(&grouped, subject, [debt, limit])),
        );
    }
}

fn both(policies: &[PolicyId; 2], subject: u64, limits: [Limit; 2]) -> Vec<Check<'_>> {
    let each = [0, 1].map(|each| check(&policies[each], subject, limits[each]));
    each.into()
}

fn check(policy: &PolicyId, subject: u64, limit: Limit) -> Check<'_> {
    Check::of(policy, subject, &limit, Action::consume(1))
}

/// Each is decided or fails with what it is told, or none of them has an answer.
fn ask(reply: &Value, questions: [Vec<Check<'_>>; 3]) {
    let question = |checks: Vec<Check<'_>>| Question::new(&checks, Micros::ZERO, None);
    let questions = questions.map(|checks| Box::new(question(checks)));
    let batch = Batch::of(&questions, &Prefix::default());
    let answers = batch.conclude(&questions, Ok(reply.clone()));
    assert_eq!(answers.len(), questions.len());
    for decision in answers.iter().flatten().flat_map(|answer| answer.iter()) {
        assert!(decision.remaining() <= 256, "{decision:?}");
    }
}
