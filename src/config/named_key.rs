//! `NamedKey`: a key whose values a file can name, as `deny`, `allow` and `tiers` do.

use super::FileError;
use super::field::Field;
use super::key::UserId;
use crate::key::Key;

pub(super) const EXPECTED: &str = "\"header:<name>\" or \"user\"";

/// A key that the file can name the values of: it has one part, which is a text.
#[derive(Clone, Copy)]
pub(super) enum NamedKey<'t> {
    Header(&'t str),
    User,
}

impl<'t> NamedKey<'t> {
    /// `None` when it is another key.
    pub(super) fn read(key: &Field<'t>) -> Option<Self> {
        match key.as_text()? {
            "user" => Some(Self::User),
            text => text.strip_prefix("header:").map(Self::Header),
        }
    }

    /// `values = ["mallory"]`, as keys.
    pub(super) fn values(self, values: &Field<'_>) -> Result<Vec<Key>, FileError> {
        let one = |value: &Field<'_>| {
            // Not shown, whatever it is: it may be somebody's API key.
            let text = value.as_text().ok_or_else(|| {
                value.refuse("a value is no text, expected a list of texts, as [\"mallory\"]")
            })?;
            if text.is_empty() || text.trim() != text {
                return Err(
                    value.refuse("a value is empty or has blanks around it, no key is like that")
                );
            }
            Ok(self.of(text))
        };
        values.one_or_more(one, "it is about nobody; leave it out")
    }

    fn of(self, value: &str) -> Key {
        match self {
            Self::Header(name) => Key::header(name, value.as_bytes()),
            Self::User => UserId::new(value).into(),
        }
    }
}
