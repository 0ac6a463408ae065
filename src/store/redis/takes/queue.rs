//! Takes of one key that share a trip, judged one after the other by the script for everything; those that are
//! alike by a few steps, however many they are.

use std::vec;

use redis::{Cmd, Value};

use super::take::Take;
use crate::algorithm::{Algorithm, Reading};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::Check;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::{Judged, bad, judged};
use crate::store::redis::script::{Composed, Row, Script, Scripted, queue_script};
use crate::store::redis::trips::{AskedTogether, Readings};
use crate::time::Micros;

/// Takes of one key with equal costs, one behind the other.
struct Run {
    row: Row,
    takes: usize,
    algorithm: Algorithm,
    cost: u32,
}

/// The takes of one trip, in the order in which they came.
pub(in crate::store::redis) struct Queue {
    script: &'static Composed,
    key: Vec<u8>,
    subject: Subject,
    now: Micros,
    runs: Vec<Run>,
}

impl Queue {
    /// `None` of no takes.
    pub(super) fn of(takes: &[&Take], prefix: &Prefix) -> Option<Self> {
        let each = || takes.iter().map(|take| out_of_shadow(take.check()));
        let first = each().next()?;
        let script = queue_script(&first);
        let mut runs: Vec<Run> = Vec::new();
        let mut last = None;
        for check in each() {
            let asked = Some((check.algorithm, check.action));
            match runs.last_mut().filter(|_| last == asked) {
                Some(run) => run.takes += 1,
                None => runs.push(Run {
                    row: Row::of(&check, script, false),
                    takes: 1,
                    algorithm: check.algorithm,
                    cost: check.action.takes(),
                }),
            }
            last = asked;
        }
        Some(Self {
            script,
            key: prefix.key(&first),
            subject: first.subject,
            now: takes.iter().map(|take| take.now).max()?,
            runs,
        })
    }
}

/// Takes in shadow are judged as all others, as none has anything beside it.
fn out_of_shadow(check: Check<'_>) -> Check<'_> {
    Check {
        is_shadow: false,
        ..check
    }
}

impl AskedTogether for Queue {
    type Read = Reading;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Reading>, StoreError> {
        let mut judged = judged(reply)?.into_iter();
        let mut readings = Vec::new();
        for run in &self.runs {
            readings.extend(
                run.read(&mut judged)?
                    .into_iter()
                    .map(|reading| Ok(Some(reading))),
            );
        }
        match judged.next() {
            None => Ok(readings),
            Some(_) => Err(bad("too many rows")),
        }
    }
}

impl Run {
    fn read(&self, judged: &mut vec::IntoIter<Judged>) -> Result<Vec<Reading>, StoreError> {
        let mut readings: Vec<Reading> = Vec::with_capacity(self.takes);
        while readings.len() < self.takes {
            let before = readings.last().copied();
            let left = self.takes - readings.len();
            match (before, judged.as_slice().first()) {
                // Behind one that is denied all of the run are, alike.
                (Some(denied), _) if !denied.fits => {
                    readings.resize(self.takes, denied);
                    break;
                }
                (_, Some(Judged::One(reading))) => readings.push(*reading),
                (Some(before), Some(&Judged::Alike(takes)))
                    if (1..=left as u64).contains(&takes) =>
                {
                    let taken = (1..=takes).map(|takes| self.cost.saturating_mul(takes as u32));
                    readings.extend(taken.map(|taken| self.algorithm.behind(&before, taken)));
                }
                _ => return Err(bad("other rows than there are takes")),
            }
            judged.next();
        }
        Ok(readings)
    }
}

impl Scripted for Queue {
    fn script(&self) -> &Script {
        &self.script.script
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(1).arg(&self.key);
        command.arg(self.now.get());
        for run in &self.runs {
            run.row.write_to(&mut command);
            command.arg(run.takes);
        }
        command
    }
}
