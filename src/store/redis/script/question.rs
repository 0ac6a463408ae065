//! A question: the script, its keys and its arguments.

use redis::Cmd;

use super::composed::Parts;
use super::{Composed, Script, Scripted};
use crate::algorithm::{Arguments, MOST_ARGUMENTS};
use crate::store::Check;
use crate::store::redis::keys::{Prefix, field};
use crate::time::Micros;

/// A question to the server, ready to be sent: by the script's digest, or with its text.
pub(in crate::store::redis) struct Question {
    parts: Parts,
    script: &'static Composed,
    keys: Vec<Vec<u8>>,
    now: Micros,
    rows: Vec<Row>,
    /// Whether a check on another node denies.
    is_denied_elsewhere: bool,
}

/// The arguments of one check.
#[derive(PartialEq, Eq)]
pub(in crate::store::redis) struct Row {
    /// A mark for the script, before the name of the algorithm.
    mark: &'static str,
    name: &'static str,
    verb: &'static str,
    numbers: Arguments,
    /// The number of arguments in the script's rows.
    room: usize,
    field: String,
}

impl Row {
    pub(in crate::store::redis) fn of(
        check: &Check<'_>,
        script: &Composed,
        tell_rates_apart: bool,
    ) -> Self {
        let is_further = tell_rates_apart && check.policy.further_rate().is_some();
        Self {
            mark: match (check.is_shadow, is_further) {
                (false, false) => "",
                (false, true) => "+",
                (true, false) => "shadow:",
                (true, true) => "shadow:+",
            },
            name: check.algorithm.name(),
            verb: check.algorithm.verb(&check.action),
            numbers: check.algorithm.arguments(&check.action),
            // The algorithm's name and the verb precede them, the field follows.
            room: (script.stride - 3).min(MOST_ARGUMENTS),
            field: field(check),
        }
    }

    pub(in crate::store::redis) fn write_to(&self, command: &mut Cmd) {
        match self.mark {
            "" => command.arg(self.name),
            mark => command.arg(format!("{mark}{}", self.name)),
        };
        command.arg(self.verb);
        for number in &self.numbers[..self.room] {
            command.arg(*number);
        }
        command.arg(&self.field);
    }
}

impl Question {
    pub(in crate::store::redis) fn new(
        checks: &[Check<'_>],
        prefix: &Prefix,
        now: Micros,
        is_denied_elsewhere: bool,
    ) -> Self {
        let parts = Parts::of(checks);
        let script = parts.script();
        let tell_rates_apart = parts.tell_rates_apart();
        let rows = checks
            .iter()
            .map(|check| Row::of(check, script, tell_rates_apart));
        let keys = checks.iter().map(|check| prefix.key(check));
        Self {
            parts,
            script,
            keys: keys.collect(),
            now,
            rows: rows.collect(),
            is_denied_elsewhere,
        }
    }

    /// The parts of its script: questions with the same number have the same script.
    pub(in crate::store::redis) fn parts(&self) -> u16 {
        self.parts.number()
    }

    /// The command that asks all of these questions with their common script.
    pub(in crate::store::redis) fn command_of<'a>(
        questions: impl Iterator<Item = &'a Self> + Clone,
        verb: &str,
        script: &str,
    ) -> Cmd {
        let each = || questions.clone();
        let mut command = redis::cmd(verb);
        let keys = each().map(|question| question.keys.len());
        command.arg(script).arg(keys.clone().sum::<usize>());
        for question in each() {
            command.arg(&question.keys);
        }
        let now = each().map(|question| question.now).max();
        command.arg(now.unwrap_or_default().get());
        for question in each() {
            question
                .rows
                .iter()
                .for_each(|row| row.write_to(&mut command));
        }
        if keys.clone().nth(1).is_some() {
            keys.for_each(|keys| {
                command.arg(keys);
            });
        }
        command
    }
}

impl Scripted for Question {
    fn script(&self) -> &Script {
        &self.script.script
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = Self::command_of(std::iter::once(self), verb, script);
        if self.is_denied_elsewhere {
            command.arg("denied");
        }
        command
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::algorithm::Action;
    use crate::limit::Limit;
    use crate::store::PolicyId;
    use crate::time::SECOND;

    /// Numbers among the keys would hide from a cluster which slots a script needs.
    #[test]
    fn numbers_are_passed_as_arguments_and_keys_are_keys() {
        let policy = PolicyId::new("api");
        let check = |limit: Limit| Check::of(&policy, "alice", &limit, Action::take(7));
        let checks = [
            Limit::gcra(10, SECOND),
            Limit::fixed_window(10, SECOND),
            Limit::concurrency(10),
        ]
        .map(check);
        let question = Question::new(&checks, &Prefix::default(), Micros::ZERO, false);
        let sent = question.arguments();
        assert_eq!(sent[0], checks.len().to_string().into_bytes());
        assert_eq!(
            sent[1..4],
            checks.map(|check| Prefix::default().key(&check))
        );
    }
}
