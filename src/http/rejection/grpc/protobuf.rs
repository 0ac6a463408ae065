//! Protocol buffers, as far as the details of a rejection need them: see
//! <https://protobuf.dev/programming-guides/encoding>.

/// A message being built, field by field.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    const INTEGER: u64 = 0;
    const BYTES: u64 = 2;

    pub(super) fn integer(&mut self, field: u64, value: u64) {
        // An absent field is zero.
        if value != 0 {
            self.tag(field, Self::INTEGER);
            self.varint(value);
        }
    }

    pub(super) fn bytes(&mut self, field: u64, value: &impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.tag(field, Self::BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Drops what was added since the message had this length.
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// Seven bits in each byte, the lowest first. All bytes but the last have the high bit set.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
