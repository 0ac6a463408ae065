//! The question that most requests are: one plain take of one key, answered with one integer.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::keys::{Prefix, field};
use super::script::{Script, Scripted};
use crate::algorithm::{Algorithm, PlainTake, Reading};
use crate::key::Subject;
use crate::store::Check;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

pub(super) const TEXT: &str = include_str!("../../../lua/plain.lua");
pub(super) const QUEUE_TEXT: &str = include_str!("../../../lua/plain_queue.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));
static QUEUE: LazyLock<Script> = LazyLock::new(|| Script::new(QUEUE_TEXT));

/// What a debt is below, as nobody owes more than 120 years: that which is not, is none.
const MOST_DEBT_US: i64 = 1 << 52;

/// About so long is a command beside its script: to be made in one piece.
const MOST_BYTES: usize = 160;

/// The question.
pub(super) struct Plain {
    pub(super) asked: Asked,
    check: OwnedCheck,
}

/// What of it is sent.
#[derive(Clone)]
pub(super) struct Asked {
    key: String,
    subject: Subject,
    take: PlainTake,
    /// Zero asks the server's clock.
    now: Micros,
}

impl Plain {
    /// `None` when the checks ask for something else.
    pub(super) fn of(checks: &[Check<'_>], prefix: &Prefix, now: Micros) -> Option<Self> {
        let [check] = checks else { return None };
        if check.is_shadow || !field(check).is_empty() {
            return None;
        }
        Some(Self {
            asked: Asked {
                take: PlainTake::of(&check.algorithm, &check.action)?,
                key: prefix.key(check),
                subject: check.subject,
                now,
            },
            check: OwnedCheck::of(check),
        })
    }

    /// What is read when the key owes so much.
    pub(super) fn read(&self, debt_us: u64) -> Reading {
        self.asked.take.read(debt_us)
    }

    pub(super) fn now(&self) -> Micros {
        self.asked.now
    }

    pub(super) fn subject(&self) -> Subject {
        self.asked.subject
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.check.algorithm
    }

    /// What it asks.
    pub(super) fn check(&self) -> Check<'_> {
        self.check.check()
    }
}

impl Scripted for Plain {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let Asked { key, take, now, .. } = &self.asked;
        let mut command = Cmd::with_capacity(7, MOST_BYTES + script.len());
        command.arg(verb).arg(script).arg(1).arg(key);
        command.arg(take.cost_us).arg(take.room_us);
        if *now > Micros::ZERO {
            command.arg(now.get());
        }
        command
    }
}

/// The debt that a script replies; `None` of anything else.
pub(super) fn debt(reply: &Value) -> Option<u64> {
    match reply {
        Value::Int(debt_us @ 0..MOST_DEBT_US) => Some(debt_us.unsigned_abs()),
        _ => None,
    }
}

/// Plain takes of one key, in the order in which they came.
pub(super) struct PlainQueue {
    key: String,
    subject: Subject,
    now: Micros,
    takes: Vec<PlainTake>,
}

impl PlainQueue {
    /// `None` of no takes.
    pub(super) fn of<'a>(asked: impl Iterator<Item = &'a Asked> + Clone) -> Option<Self> {
        let first = asked.clone().next()?;
        Some(Self {
            key: first.key.clone(),
            subject: first.subject,
            now: asked.clone().map(|asked| asked.now).max()?,
            takes: asked.map(|asked| asked.take).collect(),
        })
    }

    pub(super) fn subject(&self) -> Subject {
        self.subject
    }

    /// What is read at each take's turn, when the key owed so much at first.
    pub(super) fn read(&self, first: u64) -> Vec<Reading> {
        let mut owed_us = first;
        let takes = self.takes.iter();
        takes
            .map(|take| {
                let reading = take.read(owed_us);
                if reading.fits {
                    owed_us += take.cost_us;
                }
                reading
            })
            .collect()
    }
}

impl Scripted for PlainQueue {
    fn script(&self) -> &Script {
        &QUEUE
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(1).arg(&self.key);
        command.arg(self.now.get());
        let tolerance_us = self.takes.first().map(|take| take.cost_us + take.room_us);
        command.arg(tolerance_us.unwrap_or_default());
        for run in self.takes.chunk_by(|one, next| one.cost_us == next.cost_us) {
            command.arg(run[0].cost_us).arg(run.len());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::Action;
    use crate::key::Key;
    use crate::limit::Limit;
    use crate::store::redis::queue::decision;
    use crate::store::{FailureMode, PolicyId};
    use crate::time::SECOND;

    const NOW: Micros = Micros::new(1_800_000_000_000_000);

    proptest! {
        #[test]
        fn takes_that_come_together_are_judged_as_if_one_after_the_other(
            capacity in 1_u32..50,
            used in 0_u32..70,
            costs in prop::collection::vec(1_u32..50, 1..60),
        ) {
            let limit = Limit::gcra(1, SECOND).burst(capacity);
            let algorithm = Algorithm::try_from(&limit).unwrap();
            let mut state = algorithm.untouched();
            // By a limit that was higher, also more than all.
            let charge = Action::Charge(used);
            let reading = algorithm.read(&state, NOW, &charge);
            algorithm.commit(&mut state, NOW, &charge, reading);

            let policy = PolicyId::new("api");
            let takes: Vec<_> = costs
                .into_iter()
                .map(|cost| {
                    let check = Check {
                        policy: &policy,
                        subject: Subject::from(&Key::from("alice")),
                        algorithm,
                        action: Action::spend(cost.min(capacity)),
                        is_shadow: false,
                        on_store_failure: FailureMode::Allow,
                    };
                    Plain::of(&[check], &Prefix::default(), NOW).unwrap()
                })
                .collect();
            let queue = PlainQueue::of(takes.iter().map(|take| &take.asked)).unwrap();
            let first = u64::from(used) * 1_000_000;
            let read = queue.read(first);
            prop_assert_eq!(read.len(), takes.len());
            for (take, read) in takes.iter().zip(read) {
                let check = take.check();
                let reading = algorithm.read(&state, NOW, &check.action);
                if reading.fits {
                    algorithm.commit(&mut state, NOW, &check.action, reading);
                }
                prop_assert_eq!(decision(&check, read), decision(&check, reading));
            }
        }
    }
}
