//! The question that most requests are: one plain take of one key, answered with one integer.

use std::sync::OnceLock;

use redis::{Cmd, RedisError, Value};

use super::keys::Prefix;
use super::script::Scripted;
use crate::algorithm::{Action, PlainTake};
use crate::decision::Decisions;
use crate::store::Check;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

pub(super) const TEXT: &str = include_str!("../../../lua/plain.lua");

/// What a debt is below: that which is not, is none.
const MOST_DEBT_US: i64 = 1 << 53;

/// The question.
pub(super) struct Plain {
    key: String,
    take: PlainTake,
    now: Micros,
    check: OwnedCheck,
}

impl Plain {
    /// `None` when the checks ask for something else.
    pub(super) fn of(checks: &[Check<'_>], prefix: &Prefix, now: Micros) -> Option<Self> {
        let [check] = checks else { return None };
        let Action::Take(take) = &check.action else {
            return None;
        };
        if check.is_shadow {
            return None;
        }
        Some(Self {
            take: PlainTake::of(&check.algorithm, take)?,
            key: prefix.key(check).to_string(),
            now,
            check: OwnedCheck::of(check),
        })
    }

    /// The decision; `None` when the server has to be asked by the script for everything.
    pub(super) fn read(&self, reply: &Value) -> Option<Decisions> {
        let Value::Int(debt_us @ 0..MOST_DEBT_US) = reply else {
            return None;
        };
        let (algorithm, action) = (&self.check.algorithm, &self.check.action);
        let decision = algorithm.decide_plain(debt_us.unsigned_abs(), action)?;
        Some(decision.into())
    }

    /// What it asks.
    pub(super) fn check(&self) -> Check<'_> {
        self.check.check()
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(1).arg(&self.key);
        command.arg(self.take.cost_us).arg(self.take.room_us);
        if self.now > Micros::ZERO {
            command.arg(self.now.get());
        }
        command
    }
}

impl Scripted for Plain {
    fn by_digest(&self) -> Cmd {
        static DIGEST: OnceLock<String> = OnceLock::new();
        let digest = DIGEST.get_or_init(|| redis::Script::new(TEXT).get_hash().to_owned());
        self.command("EVALSHA", digest)
    }

    fn with_text(&self) -> Cmd {
        self.command("EVAL", TEXT)
    }
}

/// Whether the key holds another form of the state, or something else: nothing was written.
pub(super) fn is_other_form(error: &RedisError) -> bool {
    let texts = [
        "attempt to perform arithmetic",
        "not an integer",
        "out of range",
    ];
    let detail = error.detail().unwrap_or_default();
    texts.iter().any(|text| detail.contains(text))
}
