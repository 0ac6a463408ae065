//! A bounded writer of Structured Fields (RFC 9651), with the items of `RateLimit-Policy` and
//! `RateLimit`.

use http::HeaderValue;

use super::super::seconds::{renewal_secs, window_secs};
use crate::decision::Decision;

/// A buffer for the items of a few policies, in bytes.
pub(super) const SHORT: usize = 192;

/// The parameter of a concurrency limit.
const CONCURRENT: &str = ";qu=\"concurrent-requests\"";

/// The buffer of a field's value, on the stack since every response has two. Pushing returns `None`
/// if the text does not fit.
pub(super) struct Text<const ROOM: usize> {
    bytes: [u8; ROOM],
    pub(super) length: usize,
}

impl<const ROOM: usize> Default for Text<ROOM> {
    fn default() -> Self {
        Self {
            bytes: [0; ROOM],
            length: 0,
        }
    }
}

impl<const ROOM: usize> Text<ROOM> {
    pub(super) fn push_policy(&mut self, name: &str, decision: &Decision) -> Option<()> {
        self.push_item(name, ";q=", decision.limit)?;
        if decision.counts_in_time() {
            self.push_parameter(";w=", window_secs(decision))
        } else if decision.limit > 0 {
            self.push(CONCURRENT)
        } else {
            // A limit that admits nothing has neither a window nor a unit.
            Some(())
        }
    }

    pub(super) fn push_quota(&mut self, name: &str, decision: &Decision) -> Option<()> {
        self.push_item(name, ";r=", decision.remaining)?;
        if decision.counts_in_time() {
            self.push_parameter(";t=", renewal_secs(decision))
        } else {
            Some(())
        }
    }

    fn push_item(&mut self, name: &str, key: &str, number: u64) -> Option<()> {
        if self.length > 0 {
            self.push(", ")?;
        }
        self.push_sf_string(name)?;
        self.push_parameter(key, number)
    }

    fn push_parameter(&mut self, key: &str, number: u64) -> Option<()> {
        self.push(key)?;
        self.push(itoa::Buffer::new().format(number))
    }

    fn push(&mut self, text: &str) -> Option<()> {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Some(())
    }

    /// RFC 9651, section 4.1.6. Policy names are printable ASCII, so nothing else needs escaping.
    fn push_sf_string(&mut self, text: &str) -> Option<()> {
        self.push("\"")?;
        // In large pieces: hardly any name has a character to escape.
        let mut rest = text;
        while let Some(position) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\')) {
            let (plain, special) = rest.split_at(position);
            self.push(plain)?;
            self.push("\\")?;
            let (special, after) = special.split_at(1);
            self.push(special)?;
            rest = after;
        }
        self.push(rest)?;
        self.push("\"")
    }

    /// `None` if nothing was written.
    pub(super) fn value(&self) -> Option<HeaderValue> {
        let written = self.bytes.get(..self.length)?;
        let is_written = !written.is_empty();
        is_written.then(|| HeaderValue::from_bytes(written).ok())?
    }
}
