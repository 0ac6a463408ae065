//! Plain takes of one subject whose states share a key: further rates of a limit, policies of a group.

use std::sync::LazyLock;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::keys::{Prefix, are_together, field};
use super::plain::debt;
use super::script::{Script, Scripted};
use crate::algorithm::{PlainTake, Reading, decide};
use crate::decision::Decisions;
use crate::key::Subject;
use crate::store::Check;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

pub(super) const TEXT: &str = include_str!("../../../lua/plain_pack.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// The question.
pub(super) struct PlainPack {
    key: String,
    subject: Subject,
    /// Zero asks the server's clock.
    now: Micros,
    takes: SmallVec<[PlainTake; 4]>,
    /// The takes as the script reads them.
    packed: Vec<u8>,
    checks: SmallVec<[OwnedCheck; 4]>,
}

impl PlainPack {
    /// `None` when the checks ask for something else, or of more than one key.
    pub(super) fn of(checks: &[Check<'_>], prefix: &Prefix, now: Micros) -> Option<Self> {
        let (first, others) = checks.split_first()?;
        if !others.iter().all(|other| are_together(first, other)) {
            return None;
        }
        let takes = checks.iter().map(|check| {
            let take = PlainTake::of(&check.algorithm, &check.action);
            take.filter(|_| !check.is_shadow)
        });
        let takes: SmallVec<[PlainTake; 4]> = takes.collect::<Option<_>>()?;
        let mut packed = Vec::with_capacity(takes.len() * 48);
        msgpack::array_of(&mut packed, takes.len() * 3);
        for (check, take) in checks.iter().zip(&takes) {
            msgpack::text(&mut packed, &field(check));
            msgpack::number(&mut packed, take.cost_us);
            msgpack::number(&mut packed, take.room_us);
        }
        Some(Self {
            key: prefix.key(first),
            subject: first.subject,
            now,
            takes,
            packed,
            checks: checks.iter().map(OwnedCheck::of).collect(),
        })
    }

    pub(super) fn subject(&self) -> Subject {
        self.subject
    }

    /// What it asks.
    pub(super) fn checks(&self) -> SmallVec<[Check<'_>; 4]> {
        self.checks.iter().map(OwnedCheck::check).collect()
    }

    /// The decisions; `None` when the server has to be asked by the script for everything.
    pub(super) fn read(&self, reply: &Value) -> Option<Decisions> {
        let Value::Array(debts) = reply else {
            return None;
        };
        if debts.len() != self.takes.len() {
            return None;
        }
        let readings = debts.iter().zip(&self.takes);
        let readings: SmallVec<[Reading; 4]> = readings
            .map(|(reply, take)| Some(take.read(debt(reply)?)))
            .collect::<Option<_>>()?;
        Some(decide(self.checks().iter().map(Check::ask), &readings))
    }
}

impl Scripted for PlainPack {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(1).arg(&self.key);
        command.arg(self.now.get()).arg(&self.packed);
        command
    }
}

/// As much of the format as the takes need: <https://github.com/msgpack/msgpack/blob/master/spec.md>.
mod msgpack {
    pub(super) fn array_of(to: &mut Vec<u8>, entries: usize) {
        to.push(0xdd);
        to.extend(u32::try_from(entries).unwrap_or(u32::MAX).to_be_bytes());
    }

    pub(super) fn text(to: &mut Vec<u8>, text: &str) {
        to.push(0xdb);
        to.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        to.extend(text.as_bytes());
    }

    pub(super) fn number(to: &mut Vec<u8>, number: u64) {
        to.push(0xcf);
        to.extend(number.to_be_bytes());
    }
}
