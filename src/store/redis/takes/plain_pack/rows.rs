//! `Row`: what the script is told once for all keys with equal questions.

use crate::store::redis::keys::field;
use crate::store::redis::takes::msgpack;
use crate::store::redis::takes::plain_takes::PlainTakes;
use redis::Cmd;

/// Some arguments of the script: an equal run of this many consecutive keys. Zero keys: the last
/// one has this run, too.
pub(super) struct Row {
    fields: Vec<u8>,
    blank: Blank,
    prices: Vec<u8>,
    packs: u32,
    keys: usize,
}

/// A pack of just these fields, all zero, and how `struct` reads it, so that the script need not
/// build one.
struct Blank {
    pack: Vec<u8>,
    form: String,
}

impl Blank {
    fn of(fields: &[String]) -> Self {
        let mut pack = Vec::with_capacity(fields.len() * 32);
        let mut form = ">".to_owned();
        msgpack::map_of(&mut pack, fields.len());
        let mut read = 0;
        for field in fields {
            msgpack::short_text(&mut pack, field);
            msgpack::number(&mut pack, 0);
            let before = pack.len() - read - size_of::<u64>();
            form.push_str(&format!("c{before}I8"));
            read = pack.len();
        }
        Self { pack, form }
    }
}

impl Row {
    pub(super) fn of(pack: &PlainTakes, packs: u32, keys: usize) -> Self {
        let names: Vec<_> = pack.checks().map(|check| field(&check)).collect();
        let mut fields = Vec::with_capacity(pack.len() * 32);
        let mut prices = Vec::with_capacity(pack.len() * 30);
        msgpack::array_of(&mut fields, pack.len());
        msgpack::array_of(&mut prices, pack.len() * 3);
        let takes = pack.prices().zip(pack.by_themselves());
        for (name, (price, is_by_itself)) in names.iter().zip(takes) {
            msgpack::text(&mut fields, name);
            msgpack::number(&mut prices, price.cost_us);
            msgpack::number(&mut prices, price.room_us);
            msgpack::number(&mut prices, is_by_itself.into());
        }
        Self {
            fields,
            blank: Blank::of(&names),
            prices,
            packs,
            keys,
        }
    }

    /// Its approximate length in a command.
    pub(super) fn bytes(&self) -> usize {
        let blank = self.blank.pack.len() + self.blank.form.len();
        self.fields.len() + blank + self.prices.len() + 80
    }

    pub(super) fn write_to(&self, command: &mut Cmd) {
        command.arg(&self.fields);
        command.arg(&self.blank.pack).arg(&self.blank.form);
        command.arg(&self.prices);
        command.arg(self.packs).arg(self.keys);
    }
}
