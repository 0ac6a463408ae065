//! Takes that share a trip, judged one after the other by the script for everything, key by key; those that are
//! alike by a few steps, however many they are.

use std::iter::Peekable;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::names::Names;
use super::take::Take;
use crate::algorithm::{Action, Algorithm, Reading};
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::Check;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::{Judged, bad, judged};
use crate::store::redis::script::{Composed, Row, Script, Scripted, queue_script};
use crate::store::redis::trips::{AskedTogether, ByFingerprint, FingerprintMap, Readings};
use crate::time::Micros;

/// The takes of one trip, by one algorithm, in the order in which they came, key by key.
pub(in crate::store::redis) struct Queue {
    script: &'static Composed,
    /// Of the first of them. All have the same one where it matters, which is in a cluster.
    subject: Subject,
    now: Micros,
    names: Names,
    keys: Vec<Key>,
    /// Of which key each take is.
    places: Vec<usize>,
}

/// What is taken of a key.
struct Key {
    runs: SmallVec<[Run; 1]>,
}

/// Takes of one key with equal costs, one behind the other.
struct Run {
    row: Row,
    takes: usize,
    algorithm: Algorithm,
    action: Action,
}

/// Equal runs of so many keys in a row. Of no keys: the last one has that run, too.
struct Runs<'a> {
    run: &'a Run,
    keys: usize,
}

impl Queue {
    /// `None` of no takes.
    pub(super) fn of(takes: &[&Take], prefix: &Prefix) -> Option<Self> {
        let first = takes.first()?.check();
        let script = queue_script(&first);
        let mut queue = Self {
            script,
            subject: first.subject,
            now: Micros::ZERO,
            names: Names::with_capacity(takes.len()),
            keys: Vec::with_capacity(takes.len()),
            places: Vec::with_capacity(takes.len()),
        };
        let mut positions = FingerprintMap::with_capacity_and_hasher(takes.len(), ByFingerprint);
        for take in takes {
            let check = out_of_shadow(take.check());
            let position = *positions
                .entry(take.fingerprint)
                .or_insert(queue.keys.len());
            queue.now = queue.now.max(take.now);
            if position == queue.keys.len() {
                queue.names.push(&check, prefix);
                queue.keys.push(Key {
                    runs: SmallVec::new(),
                });
            }
            queue.keys[position].add(&check, script);
            queue.places.push(position);
        }
        Some(queue)
    }

    fn rows(&self) -> Vec<Runs<'_>> {
        let mut rows: Vec<Runs<'_>> = Vec::new();
        for key in &self.keys {
            for (position, run) in key.runs.iter().enumerate() {
                match rows.last_mut() {
                    Some(last) if position == 0 && last.keys > 0 && last.run.asks_as(run) => {
                        last.keys += 1;
                    }
                    _ => rows.push(Runs {
                        run,
                        keys: usize::from(position == 0),
                    }),
                }
            }
        }
        rows
    }
}

/// Takes in shadow are judged as all others, as none has anything beside it.
fn out_of_shadow(check: Check<'_>) -> Check<'_> {
    Check {
        is_shadow: false,
        ..check
    }
}

impl Key {
    fn add(&mut self, check: &Check<'_>, script: &Composed) {
        let asked = (check.algorithm, check.action);
        match self.runs.last_mut() {
            Some(run) if (run.algorithm, run.action) == asked => run.takes += 1,
            _ => self.runs.push(Run {
                row: Row::of(check, script, false),
                takes: 1,
                algorithm: check.algorithm,
                action: check.action,
            }),
        }
    }

    /// What was read of each of its takes; or why none was.
    fn read(
        &self,
        judged: &mut Peekable<impl Iterator<Item = Judged>>,
    ) -> Result<Result<Vec<Reading>, StoreError>, StoreError> {
        if let Some(Judged::Failed(error)) =
            judged.next_if(|judged| matches!(judged, Judged::Failed(_)))
        {
            return Ok(Err(error));
        }
        let mut readings = Vec::new();
        for run in &self.runs {
            run.read(judged, &mut readings)?;
        }
        Ok(Ok(readings))
    }
}

impl Run {
    /// Whether the script is asked the same of both.
    fn asks_as(&self, other: &Self) -> bool {
        self.takes == other.takes && self.row == other.row
    }

    fn read(
        &self,
        judged: &mut Peekable<impl Iterator<Item = Judged>>,
        readings: &mut Vec<Reading>,
    ) -> Result<(), StoreError> {
        let (mut left, mut before) = (self.takes, None);
        while left > 0 {
            // Behind one that is denied all of the run are, alike.
            let denied = before.filter(|before: &Reading| !before.fits);
            if let Some(denied) = denied {
                readings.extend(std::iter::repeat_n(denied, left));
                break;
            }
            match (before, judged.next()) {
                (_, Some(Judged::One(reading))) => readings.push(reading),
                (Some(before), Some(Judged::Alike(takes)))
                    if (1..=left as u64).contains(&takes) =>
                {
                    let cost = self.action.takes();
                    let taken = (1..=takes).map(|takes| cost.saturating_mul(takes as u32));
                    readings.extend(taken.map(|taken| self.algorithm.behind(&before, taken)));
                    left -= takes as usize - 1;
                }
                _ => return Err(bad("other rows than there are takes")),
            }
            left -= 1;
            before = readings.last().copied();
        }
        Ok(())
    }
}

impl AskedTogether for Queue {
    type Read = Reading;

    fn subject(&self) -> Subject {
        self.subject
    }

    fn read(&self, reply: &Value) -> Result<Readings<Reading>, StoreError> {
        let mut judged = judged(reply)?.into_iter().peekable();
        let keys = self.keys.iter().map(|key| key.read(&mut judged));
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        if judged.next().is_some() {
            return Err(bad("too many rows"));
        }
        let mut taken = vec![0; keys.len()];
        let each = self.places.iter().map(|&key| {
            let behind = taken[key];
            taken[key] += 1;
            match &keys[key] {
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
        let mut command = redis::cmd(verb);
        command.arg(script).arg(self.names.len());
        for name in self.names.iter() {
            command.arg(name);
        }
        command.arg(self.now.get());
        for Runs { run, keys } in self.rows() {
            run.row.write_to(&mut command);
            command.arg(run.takes).arg(keys);
        }
        command
    }
}

#[cfg(test)]
mod tests;
