//! The most frequent question: one plain take of one key, answered with one integer.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::take::Take;
use crate::algorithm::PlainTake;
use crate::error::StoreError;
use crate::store::redis::keys::Prefix;
use crate::store::redis::reply::bad;
use crate::store::redis::script::{Script, Scripted};
use crate::time::Micros;

pub(super) const TEXT: &str = include_str!("../../../../lua/plain.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// Above any debt, as nobody owes more than 120 years. If a value is not below this, scripts report
/// that it is no debt.
pub(super) const MOST_DEBT_US: i64 = 1 << 52;

/// The approximate length of a command without its script, so that it takes one allocation.
const MOST_BYTES: usize = 160;

/// The question.
pub(super) struct Alone {
    key: Vec<u8>,
    take: PlainTake,
    /// Zero asks the server's clock.
    now: Micros,
}

impl Alone {
    pub(super) fn of(take: &Take, plain: PlainTake, prefix: &Prefix) -> Self {
        Self {
            key: prefix.key(&take.check()),
            take: plain,
            now: take.now,
        }
    }
}

impl Scripted for Alone {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let mut command = Cmd::with_capacity(7, MOST_BYTES + script.len());
        command.arg(verb).arg(script).arg(1).arg(&self.key);
        command.arg(self.take.cost_us).arg(self.take.room_us);
        if self.now > Micros::ZERO {
            command.arg(self.now.get());
        }
        command
    }
}

/// The debt in a script's reply.
///
/// # Errors
///
/// For any other reply: the permits may have been taken, so they are not asked for again.
pub(super) fn debt(reply: &Value) -> Result<u64, StoreError> {
    match reply {
        Value::Int(debt_us @ 0..MOST_DEBT_US) => Ok(debt_us.unsigned_abs()),
        _ => Err(bad("no debt")),
    }
}

/// The same for a script that reports a key of another form, of which it has taken nothing: `None`.
pub(super) fn debt_unless_foreign(reply: &Value) -> Result<Option<u64>, StoreError> {
    match reply {
        Value::Int(-1) => Ok(None),
        reply => debt(reply).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_debt_is_no_answer() {
        assert_eq!(debt(&Value::Int(MOST_DEBT_US - 1)).unwrap(), (1 << 52) - 1);
        for reply in [Value::Int(MOST_DEBT_US), Value::Int(-1), Value::Nil] {
            assert!(debt(&reply).is_err(), "{reply:?}");
        }
        assert_eq!(debt_unless_foreign(&Value::Int(-1)).unwrap(), None);
    }
}
