//! Keys by the words of the file, and those whose values a file can name, as `deny`, `allow` and `tiers` do.

use std::fmt;

use http::HeaderValue;

use super::FileError;
use super::client_address::Proxies;
use super::fields::Field;
use crate::http::extract::{Extension, Header, Host};
use crate::key::Key;
use crate::request::{Everybody, KeyExtractor, canonical_host};

const EXPECTED: &str = "\"client-addr\", \"peer\", \"host\", \"header:<name>\", \"user\", \"everybody\" \
                        or a list of these";

/// The authenticated user of a request: the extension that `key = "user"` in a configuration file
/// reads.
///
/// Your authentication middleware inserts it, outside of the rate limit. A request without it gets a
/// 500 response with an explanation, unless the policy has an `on_missing_key`.
///
/// ```
/// use tower_throttle::UserId;
///
/// // in the authentication middleware, outside of the rate limit
/// fn authenticated<B>(request: &mut http::Request<B>, id: &str) {
///     request.extensions_mut().insert(UserId::new(id));
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UserId(String);

impl UserId {
    /// A user with this identifier.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }
}

/// Does not show the user, like [`Key`].
impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserId(..)")
    }
}

/// The same key as that of `key = "user"`, for [`Limiter::reset`](crate::Limiter::reset) and for
/// lists in code.
impl From<UserId> for Key {
    fn from(user: UserId) -> Self {
        Self::user(user.0)
    }
}

/// The extractor that a file asks for.
pub(super) fn read(
    field: &Field<'_>,
    proxies: &Proxies,
) -> Result<Box<dyn KeyExtractor>, FileError> {
    let Some(items) = field.items() else {
        return one(field, proxies);
    };
    if items.is_empty() {
        return Err(field.refuse(format_args!("the list is empty, expected {EXPECTED}")));
    }
    let parts = items.iter().map(|item| one(item, proxies));
    Ok(Box::new(parts.collect::<Result<Vec<_>, _>>()?))
}

fn one(field: &Field<'_>, proxies: &Proxies) -> Result<Box<dyn KeyExtractor>, FileError> {
    let key: Box<dyn KeyExtractor> = match field.text(EXPECTED)? {
        "client-addr" => Box::new(proxies.client_addr(field)?),
        "peer" => proxies.peer(),
        "everybody" => Box::new(Everybody),
        "host" => Box::new(Host),
        "user" => Box::new(Extension::with(UserId::clone)),
        text => match text.strip_prefix("header:") {
            Some(name) => Box::new(Header::new(name)),
            None => return Err(field.expected(EXPECTED)),
        },
    };
    key.validate().map_err(|error| field.refuse(error))?;
    Ok(key)
}

pub(super) const NAMED_KEYS: &str = "\"header:<name>\", \"host\" or \"user\"";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_user() {
        let shown = format!("{:?}", UserId::new("alice@example.org"));
        assert_eq!(shown, "UserId(..)");
    }
}
