//! `Row`: what the script is told once for all keys that are asked alike.

use redis::Cmd;
use smallvec::SmallVec;

use super::msgpack;
use crate::store::redis::keys::field;
use crate::store::redis::plain_takes::PlainTakes;

/// Equal packs about a key, one behind the other.
pub(super) struct Run {
    /// The first of them, among all packs.
    pub(super) first: usize,
    pub(super) packs: u32,
}

/// Those of a key.
pub(super) type Runs = SmallVec<[Run; 1]>;

/// Some arguments of the script: an equal run of so many keys in a row. No keys: the last one has that run,
/// too.
pub(super) struct Row {
    fields: Vec<u8>,
    prices: Vec<u8>,
    packs: u32,
    keys: usize,
}

/// The rows of these keys, in their order.
pub(super) fn rows<'a>(keys: impl Iterator<Item = &'a Runs>, packs: &[&PlainTakes]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut before: Option<&Run> = None;
    for (position, run) in keys.flat_map(|runs| runs.iter().enumerate()) {
        let (is_first, pack) = (position == 0, packs[run.first]);
        let is_alike = before
            .is_some_and(|before| before.packs == run.packs && packs[before.first].ask_as(pack));
        match rows.last_mut() {
            Some(row) if is_first && is_alike && row.keys > 0 => row.keys += 1,
            _ => rows.push(Row::of(pack, run.packs, usize::from(is_first))),
        }
        before = Some(run);
    }
    rows
}

impl Row {
    fn of(pack: &PlainTakes, packs: u32, keys: usize) -> Self {
        let mut fields = Vec::with_capacity(pack.len() * 32);
        let mut prices = Vec::with_capacity(pack.len() * 20);
        msgpack::array_of(&mut fields, pack.len());
        msgpack::array_of(&mut prices, pack.len() * 2);
        for (check, price) in pack.checks().zip(pack.prices()) {
            msgpack::text(&mut fields, &field(&check));
            msgpack::number(&mut prices, price.cost_us);
            msgpack::number(&mut prices, price.room_us);
        }
        Self {
            fields,
            prices,
            packs,
            keys,
        }
    }

    /// About so long it is in a command.
    pub(super) fn bytes(&self) -> usize {
        self.fields.len() + self.prices.len() + 60
    }

    pub(super) fn write_to(&self, command: &mut Cmd) {
        command.arg(&self.fields).arg(&self.prices);
        command.arg(self.packs).arg(self.keys);
    }
}
