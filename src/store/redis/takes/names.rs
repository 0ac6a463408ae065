//! `Names`: the names of the keys of a trip, concatenated.

use crate::store::Check;
use crate::store::redis::keys::{Prefix, USUAL_LENGTH};

pub(super) struct Names {
    bytes: Vec<u8>,
    /// The end of each name.
    ends: Vec<usize>,
}

impl Names {
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

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = &self.bytes[start..*end];
            start = *end;
            name
        })
    }
}
