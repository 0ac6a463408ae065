//! `Header`: the value of a request header as the key.

use http::header::{COOKIE, HOST};

use crate::error::ConfigError;
use crate::http::field::{Field, FieldValue};
use crate::key::Key;
use crate::request::{KeyError, KeyExtractor, KeyKind, RequestHead, is_equal};

/// The value of a request header: an API key, a tenant, or a user that a gateway has authenticated.
///
/// The key is the value's bytes without surrounding whitespace. If the header is absent, empty or
/// sent more than once, the request has no key, and the policy's
/// [`OnMissingKey`](crate::OnMissingKey) decides. If keys are [denied](crate::Rules::deny), a
/// request that sends the header more than once is refused, so that this is no way around the list.
///
/// # Clients that choose their subject
///
/// A client that can write anything into the header gets a new quota with each new value, also if
/// the header is only a part of the key; or it uses up somebody else's. So use it only behind
/// authentication that refuses wrong values before the layer, behind a gateway that sets the header
/// itself, or beside a second policy by address:
///
/// ```
/// use tower_throttle::{ClientAddr, Header, Limit, MINUTE, Policy};
///
/// let policies = [
///     Policy::new("key", Limit::gcra(600, MINUTE)).by(Header::new("x-api-key")),
///     Policy::new("client", Limit::gcra(1_000, MINUTE))
///         .by(ClientAddr::x_forwarded_for(["10.0.0.0/8"])?),
/// ];
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # One subject, several values
///
/// Values are compared byte by byte. If authentication accepts one credential in several forms,
/// each form is a key, with a quota of its own, and a denied one does not stop the others.
/// `Authorization` is such a header: `Bearer t`, `bearer t` and, to many services, `Bearer  t` are
/// the same token. Let authentication leave the user in the request's extensions, and use
/// [`Extension`](crate::Extension).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    field: Field,
    encoded_name: Key,
}

impl Header {
    /// Reads the header of this name, in any case.
    ///
    /// [`Limiter::new`](crate::Limiter::new) refuses a name that no header can have. It also
    /// refuses `host`, which is not a header over HTTP/2: see [`Host`](crate::Host); and `cookie`,
    /// which a request over HTTP/2 may have several of: read the cookie that identifies the user
    /// with a closure.
    pub fn new(name: impl AsRef<str>) -> Self {
        let field = Field::new(name.as_ref());
        Self {
            encoded_name: Key::from(field.name()),
            field,
        }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        match self.field.read(request.headers) {
            FieldValue::Absent | FieldValue::Once(b"") => Err(KeyError::Missing),
            FieldValue::Repeated => Err(KeyError::Malformed),
            FieldValue::Once(value) => Ok(Key::header_of(&self.encoded_name, value)),
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.field.validate()?;
        let name = self.field.name();
        let refuse = |expected| Err(ConfigError::malformed("header", name, expected));
        if name == HOST {
            return refuse(
                "over HTTP/2 there is no such header; `Host`, in a file `key = \"host\"`, reads the \
                 host of either version",
            );
        }
        // RFC 9113, section 8.2.3: cookies sent over HTTP/2 may arrive as several fields, while
        // over HTTP/1.1 they are one.
        if name == COOKIE {
            return refuse(
                "over HTTP/2 it may come in pieces; a closure can read one cookie from all of them",
            );
        }
        Ok(())
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        is_equal(self, other)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Header(self.field.name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn key(values: &[&[u8]]) -> Result<Key, KeyError> {
        let mut request = Request::new(());
        for value in values {
            let value = HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append("x-user", value);
        }
        Header::new("X-User").extract(&RequestHead::new(&request))
    }

    #[test]
    fn the_value_is_the_key_without_the_blanks_around_it() {
        assert_eq!(key(&[b"bob"]), Ok(Key::header("x-user", b"bob")));
        assert_eq!(key(&[b" bob\t"]), key(&[b"bob"]));
        assert_ne!(key(&[b"Bob"]), key(&[b"bob"]));
        assert_ne!(key(&[b"Bearer  t"]), key(&[b"Bearer t"]));
        assert_eq!(
            key(&[b"\xff,\x80"]),
            Ok(Key::header("x-user", b"\xff,\x80"))
        );
    }

    #[test]
    fn absent_and_empty_headers_are_missing() {
        for values in [&[][..], &[&b""[..]], &[b" \t "]] {
            assert_eq!(key(values), Err(KeyError::Missing), "{values:?}");
        }
    }

    #[test]
    fn repeated_headers_cannot_be_read() {
        for values in [&[&b"bob"[..], b"bob"][..], &[b"bob", b""]] {
            assert_eq!(key(values), Err(KeyError::Malformed), "{values:?}");
        }
    }

    #[test]
    fn the_host_is_no_header() {
        let refusal = Header::new("Host").validate().unwrap_err().to_string();
        assert!(
            refusal.starts_with("header: got \"host\": over HTTP/2"),
            "{refusal}"
        );
        assert!(Header::new("x-forwarded-host").validate().is_ok());
    }

    #[test]
    fn a_cookie_may_come_in_pieces() {
        let refusal = Header::new("Cookie").validate().unwrap_err().to_string();
        assert!(
            refusal.starts_with("header: got \"cookie\": over HTTP/2 it may come in pieces"),
            "{refusal}"
        );
    }

    #[test]
    fn a_name_that_no_header_can_have_is_refused() {
        for name in ["", "x user", "x-user:", "ü"] {
            let header = Header::new(name);
            let refusal = header.validate().unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("header: got {name:?}: ")));
            let request = Request::new(());
            let key = header.extract(&RequestHead::new(&request));
            assert_eq!(key, Err(KeyError::Missing));
        }
    }
}
