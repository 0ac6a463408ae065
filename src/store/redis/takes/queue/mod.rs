//! Takes that share a trip, judged one after the other by the composed script, by key. Takes that
//! differ in cost only are judged in a few steps, however many they are.

use std::iter::Peekable;

use redis::{Cmd, Value};

use super::by_key::{ByKey, Row, Run};
use super::names::Names;
use super::take::Take;
use crate::algorithm::{Action, Algorithm, Reading, Take as ActionTake};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::Check;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::{Judged, bad, judged};
use crate::store::redis::script::{Composed, Row as ScriptRow, Script, Scripted, queue_script};
use crate::store::redis::trips::{Batch, Readings};
use crate::time::Micros;

/// The takes of a trip under one algorithm, in order of arrival, by key.
pub(in crate::store::redis) struct Queue {
    script: &'static Composed,
    /// The subject of the first take. In a cluster, where it matters, all have the same one.
    subject: Subject,
    now: Micros,
    names: Names,
    takes: ByKey<Asked>,
}

/// What a take asks of its key.
#[derive(PartialEq, Eq)]
struct Asked {
    algorithm: Algorithm,
    action: Action,
    row: ScriptRow,
}

impl Queue {
    /// `None` if there are no takes.
    pub(super) fn of(takes: &[&Take], prefix: &Prefix) -> Option<Self> {
        let first = takes.first()?.check();
        let mut queue = Self {
            script: queue_script(&first),
            subject: first.subject,
            now: Micros::ZERO,
            names: Names::with_capacity(takes.len()),
            takes: ByKey::with_capacity(takes.len()),
        };
        for take in takes {
            let check = out_of_shadow(take.check());
            let (algorithm, action) = (check.algorithm, check.action);
            let is_equal =
                |before: &Asked| before.algorithm == algorithm && before.action == action;
            let asked = || Asked {
                algorithm,
                action,
                row: ScriptRow::of(&check, queue.script, false),
            };
            queue.now = queue.now.max(take.now);
            if queue.takes.add(take.fingerprint, is_equal, asked) {
                queue.names.push(&check, prefix);
            }
        }
        Some(queue)
    }
}

/// Takes in shadow are judged like all others, as there is no other check beside them.
fn out_of_shadow(check: Check<'_>) -> Check<'_> {
    Check {
        is_shadow: false,
        ..check
    }
}

impl Asked {
    fn differs_in_cost_alone(&self, other: &Self) -> bool {
        match (self.action, other.action) {
            (Action::Take(take), Action::Take(other_take)) => {
                let cost = take.cost;
                self.algorithm == other.algorithm && take == ActionTake { cost, ..other_take }
            }
            _ => false,
        }
    }
}

/// The readings of the takes of a key, or why there are none.
type OfKey = Result<Vec<Reading>, StoreError>;

/// # Errors
///
/// If the rows do not match the takes.
fn read_key(
    runs: &[Run<Asked>],
    judged: &mut Peekable<impl Iterator<Item = Judged>>,
) -> Result<OfKey, StoreError> {
    let has_failed = |judged: &Judged| matches!(judged, Judged::Failed(_));
    if let Some(Judged::Failed(error)) = judged.next_if(has_failed) {
        return Ok(Err(error));
    }
    let mut told = Told::default();
    for run in runs {
        told.read_run(run, judged)?;
    }
    match told.together {
        0 => Ok(Ok(told.readings)),
        _ => Err(other_rows()),
    }
}

fn other_rows() -> StoreError {
    bad("other rows than there are takes")
}

/// What the takes of a key are told, as far as the reply has been read.
#[derive(Default)]
struct Told {
    readings: Vec<Reading>,
    /// How many takes follow the last one with the same outcome, each after all before it have
    /// taken theirs.
    together: u64,
    /// How long until a permit comes back after the last of these.
    next: Micros,
    /// What the last one has taken, if anything.
    taken: Option<u32>,
}

impl Told {
    fn read_run(
        &mut self,
        Run { asked, times }: &Run<Asked>,
        judged: &mut impl Iterator<Item = Judged>,
    ) -> Result<(), StoreError> {
        for left in (1..=*times as usize).rev() {
            let reading = self.next(&asked.algorithm, judged)?;
            if !reading.fits {
                // After a denial, the rest of the run is denied alike.
                self.readings.extend(std::iter::repeat_n(reading, left));
                self.taken = None;
                break;
            }
            self.readings.push(reading);
            self.taken = Some(asked.action.takes());
        }
        Ok(())
    }

    fn next(
        &mut self,
        algorithm: &Algorithm,
        judged: &mut impl Iterator<Item = Judged>,
    ) -> Result<Reading, StoreError> {
        if self.together == 0 {
            match judged.next() {
                Some(Judged::One(reading)) => return Ok(reading),
                Some(Judged::Alike { takes, next }) if takes > 0 => {
                    (self.together, self.next) = (takes, next);
                }
                _ => return Err(other_rows()),
            }
        }
        self.together -= 1;
        match (self.readings.last(), self.taken) {
            (Some(before), Some(taken)) => {
                let mut reading = algorithm.behind(before, taken);
                if self.together == 0 {
                    reading.next = self.next;
                }
                Ok(reading)
            }
            _ => Err(other_rows()),
        }
    }
}

impl Batch for Queue {
    type Read = Reading;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Reading>, StoreError> {
        let mut judged = judged(reply)?.into_iter().peekable();
        let keys = self.takes.keys().map(|runs| read_key(runs, &mut judged));
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        if judged.next().is_some() {
            return Err(bad("too many rows"));
        }
        let mut told = vec![0; keys.len()];
        let each = self.takes.places().iter().map(|place| {
            let told: &mut usize = &mut told[place.key()];
            let behind = *told;
            *told += 1;
            match &keys[place.key()] {
                Ok(readings) => Ok(Some(readings[behind])),
                Err(error) => Err(error.clone()),
            }
        });
        Ok(each.collect())
    }
}

impl Scripted for Queue {
    fn script(&self) -> &Script {
        &self.script.script
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = self.names.command(verb, script, self.now, (0, 0));
        let mut before: Option<&Asked> = None;
        for Row { run, keys } in self.takes.rows(Asked::eq) {
            let asked = &run.asked;
            asked.row.write_to(&mut command);
            command.arg(run.times);
            match before {
                Some(before) if keys == 0 && asked.differs_in_cost_alone(before) => command.arg(-1),
                _ => command.arg(keys),
            };
            before = Some(asked);
        }
        command
    }
}

#[cfg(test)]
mod tests;
