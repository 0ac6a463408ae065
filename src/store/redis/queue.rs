//! Takes of one key that share a trip, judged one after the other by the script for everything.

use redis::{Cmd, Value};

use super::keys::Prefix;
use super::reply::rows;
use super::script::{Composed, Row, Script, Scripted, queue_script};
use crate::algorithm::{Action, Algorithm, Patience, Reading, decide_alone};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::Check;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

/// One that may share a trip with others.
pub(super) struct Single {
    check: OwnedCheck,
    /// Zero asks the server's clock.
    now: Micros,
}

impl Single {
    /// `None` when the checks ask for something else than one take for good.
    pub(super) fn of(checks: &[Check<'_>], now: Micros) -> Option<Self> {
        let [check] = checks else { return None };
        let Action::Take(take) = &check.action else {
            return None;
        };
        let may_share = take.is_final
            && take.cost > 0
            && take.patience == Patience::None
            && take.lease.is_none()
            && check.algorithm.lease().is_none()
            && !check.algorithm.is_penalty()
            && !check.is_shadow;
        may_share.then(|| Self {
            check: OwnedCheck::of(check),
            now,
        })
    }

    pub(super) fn now(&self) -> Micros {
        self.now
    }

    /// What it asks.
    pub(super) fn check(&self) -> Check<'_> {
        self.check.check()
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.check.algorithm
    }
}

/// Takes of one key with equal costs, one behind the other.
struct Run {
    row: Row,
    takes: usize,
}

/// The takes of one trip, in the order in which they came.
pub(super) struct Queue {
    script: &'static Composed,
    key: String,
    subject: Subject,
    now: Micros,
    runs: Vec<Run>,
}

impl Queue {
    /// `None` of no takes.
    pub(super) fn of<'a>(
        checks: impl Iterator<Item = Check<'a>>,
        prefix: &Prefix,
        now: Micros,
    ) -> Option<Self> {
        let mut checks = checks.peekable();
        let first = *checks.peek()?;
        let script = queue_script(&first);
        let mut runs: Vec<Run> = Vec::new();
        let mut last = None;
        for check in checks {
            match runs.last_mut().filter(|_| last == Some(check.action)) {
                Some(run) => run.takes += 1,
                None => runs.push(Run {
                    row: Row::of(&check, script, false),
                    takes: 1,
                }),
            }
            last = Some(check.action);
        }
        Some(Self {
            script,
            key: prefix.key(&first),
            subject: first.subject,
            now,
            runs,
        })
    }

    pub(super) fn subject(&self) -> Subject {
        self.subject
    }

    /// What was read at each take's turn.
    ///
    /// # Errors
    ///
    /// A reply of any other shape.
    pub(super) fn read(&self, reply: Value) -> Result<Vec<Reading>, StoreError> {
        let mut rows = rows(reply)?.into_iter();
        let mut readings = Vec::new();
        for run in &self.runs {
            let mut denied = None;
            for _ in 0..run.takes {
                // Behind one that is denied all of the run are, alike.
                let reading = match denied {
                    Some(denied) => denied,
                    None => rows
                        .next()
                        .ok_or_else(|| super::reply::bad("too few rows"))?,
                };
                denied = (!reading.fits).then_some(reading);
                readings.push(reading);
            }
        }
        match rows.next() {
            None => Ok(readings),
            Some(_) => Err(super::reply::bad("too many rows")),
        }
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

/// The decision on a take of which this was read.
pub(super) fn decision(check: &Check<'_>, reading: Reading) -> Decisions {
    decide_alone(check.ask(), &reading).into()
}
