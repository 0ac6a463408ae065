//! `key = ...`: the file's words for the extractors.

use std::fmt;

use super::FileError;
use super::client_address::Proxies;
use super::fields::Field;
use crate::http::extract::{Extension, Header, Host};
use crate::key::Key;
use crate::request::{Everybody, KeyExtractor};

const EXPECTED: &str = "\"client-addr\", \"peer\", \"host\", \"header:<name>\", \"user\", \"everybody\" \
                        or a list of these";

/// Whose request it is, once an outer middleware has found out: the extension that `key = "user"`
/// in a configuration file reads. A request without it is answered with 500 and an explanation,
/// unless the policy has an `on_missing_key`.
///
/// ```
/// use tower_throttle::config::UserId;
///
/// // in the middleware that authenticates, which stands outside of the rate limit
/// fn authenticated<B>(request: &mut http::Request<B>, id: &str) {
///     request.extensions_mut().insert(UserId::new(id));
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UserId(String);

impl UserId {
    /// A user, by whatever identifies one.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }
}

/// Shows nothing of the user, as [`Key`] does.
impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserId(..)")
    }
}

/// The key of `key = "user"`, in requests and in lists, and for
/// [`Limiter::reset`](crate::Limiter::reset) and its siblings.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_user() {
        let shown = format!("{:?}", UserId::new("alice@example.org"));
        assert_eq!(shown, "UserId(..)");
    }
}
