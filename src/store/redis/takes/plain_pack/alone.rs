//! `Alone`: a pack on a trip of its own, with nothing to share.

use std::sync::LazyLock;

use redis::{Cmd, Value};

use super::TEXT;
use crate::error::StoreError;
use crate::store::redis::keys::{Prefix, field};
use crate::store::redis::reply::bad;
use crate::store::redis::script::{Script, Scripted};
use crate::store::redis::takes::msgpack;
use crate::store::redis::takes::plain;
use crate::store::redis::takes::plain_takes::{Debts, Owed, PlainTakes};
use crate::time::Micros;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// The approximate length of a command without its script and takes, so that it takes one
/// allocation.
const MOST_BYTES: usize = 160;

pub(super) struct Alone {
    key: Vec<u8>,
    now: Micros,
    takes: Vec<u8>,
}

impl Alone {
    pub(super) fn of(pack: &PlainTakes, prefix: &Prefix) -> Self {
        let mut takes = Vec::with_capacity(pack.len() * 48);
        msgpack::array_of(&mut takes, pack.len() * 3);
        for (check, price) in pack.checks().zip(pack.prices()) {
            msgpack::text(&mut takes, &field(&check));
            msgpack::number(&mut takes, price.cost_us);
            msgpack::number(&mut takes, price.room_us);
        }
        Self {
            key: prefix.key(&pack.first()),
            now: pack.now,
            takes,
        }
    }

    /// The debts of this many takes; `None` if their key has another form.
    ///
    /// # Errors
    ///
    /// A reply of any other shape.
    pub(super) fn read(reply: &Value, takes: usize) -> Result<Option<Owed>, StoreError> {
        match reply {
            Value::Array(debts) if debts.len() == takes => {
                let debts = debts.iter().map(plain::debt);
                let debts = debts.collect::<Result<Debts, _>>()?;
                Ok(Some(Owed { debts, behind: 0 }))
            }
            Value::Int(-1) => Ok(None),
            _ => Err(bad("neither debts nor why there are none")),
        }
    }
}

impl Scripted for Alone {
    fn script(&self) -> &Script {
        &SCRIPT
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let bytes = MOST_BYTES + script.len() + self.takes.len();
        let mut command = Cmd::with_capacity(6, bytes);
        command.arg(verb).arg(script).arg(1).arg(&self.key);
        command.arg(self.now.get()).arg(&self.takes);
        command
    }
}
