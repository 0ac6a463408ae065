//! `NamedKey`: a key whose values a file can name, as `deny`, `allow` and `tiers` do.

use http::HeaderValue;

use super::FileError;
use super::fields::Field;
use super::key::UserId;
use crate::key::Key;
use crate::request::canonical_host;

pub(super) const EXPECTED: &str = "\"header:<name>\", \"host\" or \"user\"";

/// A key whose values the file can name: it has one part, which is a text.
#[derive(Clone, Copy)]
pub(super) enum NamedKey<'t> {
    Header(&'t str),
    Host,
    User,
}

impl<'t> NamedKey<'t> {
    /// `None` if it is another key.
    pub(super) fn read(key: &Field<'t>) -> Option<Self> {
        match key.as_text()? {
            "host" => Some(Self::Host),
            "user" => Some(Self::User),
            text => text.strip_prefix("header:").map(Self::Header),
        }
    }

    /// `values = ["mallory"]`, as keys.
    pub(super) fn values(self, values: &Field<'_>) -> Result<Vec<Key>, FileError> {
        values.one_or_more(|one| self.value(one), "it matches nobody; leave it out")
    }

    // The value is never shown: it may be somebody's API key.
    fn value(self, value: &Field<'_>) -> Result<Key, FileError> {
        let refuse = |problem| Err(value.refuse(problem));
        let Some(text) = value.as_text() else {
            return refuse("expected a list of strings, such as [\"mallory\"]");
        };
        if text.is_empty() || text.trim() != text {
            return refuse("a value is empty or has spaces around it, which no key has");
        }
        match self {
            Self::Header(_) if HeaderValue::from_bytes(text.as_bytes()).is_err() => {
                refuse("a value contains a character that no header can carry")
            }
            Self::Header(name) => Ok(Key::header(name, text.as_bytes())),
            Self::Host => match canonical_host(text) {
                Some(host) => Ok(Key::from(&*host)),
                None => refuse("a value is no host, such as \"acme.example.com\", without a port"),
            },
            Self::User => Ok(UserId::new(text).into()),
        }
    }
}
