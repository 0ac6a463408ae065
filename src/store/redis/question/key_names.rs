//! `KeyNames`: the names of the keys of a batch, concatenated.

use redis::Cmd;

use crate::store::Check;
use crate::store::redis::keys::{Prefix, USUAL_LENGTH};

pub(super) struct KeyNames {
    bytes: Vec<u8>,
    /// The end of each name.
    ends: Vec<usize>,
}

impl KeyNames {
    /// With capacity for this many.
    pub(super) fn with_capacity(keys: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(keys * USUAL_LENGTH),
            ends: Vec::with_capacity(keys),
        }
    }

    /// Adds the name of a check's key.
    pub(super) fn push(&mut self, check: &Check<'_>, prefix: &Prefix) {
        prefix.write_key(check, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = &self.bytes[start..*end];
            start = *end;
            name
        })
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The command that runs a script on these keys, without the arguments, for which it has
    /// capacity: how many there are, and how long they are together.
    pub(super) fn command(
        &self,
        verb: &str,
        script: &str,
        (arguments, bytes): (usize, usize),
    ) -> Cmd {
        let bytes = script.len() + self.bytes.len() + USUAL_LENGTH + bytes;
        let mut command = Cmd::with_capacity(3 + self.ends.len() + arguments, bytes);
        command.arg(verb).arg(script).arg(self.ends.len());
        for name in self.iter() {
            command.arg(name);
        }
        command
    }
}
