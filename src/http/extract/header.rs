//! `Header` and `HeaderCost`: the value of a request header as the key, or as the cost.

use http::header::{COOKIE, HOST};
use http::{HeaderMap, HeaderName};

use crate::error::ConfigError;
use crate::key::Key;
use crate::limit::{ANY_COST, MOST_PERMITS};
use crate::request::{
    CostError, CostExtractor, KeyError, KeyExtractor, KeyKind, RequestHead, is_equal,
};

/// A header with one expected value. Keeps the error of an invalid name until it is validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field(Result<HeaderName, ConfigError>);

/// A request's value of a [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Absent,
    /// The value without surrounding blanks.
    Once(&'a [u8]),
    Repeated,
}

impl Field {
    pub(crate) fn new(name: &str) -> Self {
        Self(HeaderName::try_from(name).map_err(|_| {
            ConfigError::malformed(
                "header",
                name,
                "expected one or more letters, digits and characters of !#$%&'*+-.^_`|~",
            )
        }))
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.0.as_ref().map(drop).map_err(Clone::clone)
    }

    /// The name in lower case.
    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or("", HeaderName::as_str)
    }

    pub(crate) fn lines<'a>(
        &self,
        headers: &'a HeaderMap,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let lines = self.0.as_ref().ok().map(|name| headers.get_all(name));
        lines.into_iter().flatten().map(|line| line.as_bytes())
    }

    pub(crate) fn read<'a>(&self, headers: &'a HeaderMap) -> FieldValue<'a> {
        let Ok(name) = &self.0 else {
            return FieldValue::Absent;
        };
        let mut lines = headers.get_all(name).iter();
        match (lines.next(), lines.next()) {
            (None, _) => FieldValue::Absent,
            (Some(value), None) => FieldValue::Once(value.as_bytes().trim_ascii()),
            (Some(_), Some(_)) => FieldValue::Repeated,
        }
    }
}

/// The value of a request header: an API key, a tenant, or a user that a gateway has authenticated.
///
/// The key is the value's bytes without surrounding whitespace. If the header is absent, empty or
/// sent more than once, the request has no key, and the policy's
/// [`OnMissingKey`](crate::OnMissingKey) decides. If the deny list contains
/// [keys](crate::Rules::deny), a request with a repeated header is rejected, so that it cannot
/// bypass the list.
///
/// # Clients that choose their subject
///
/// A client that can send any value gets a new quota with each new value, even if the header is
/// only a part of the key, or it uses up another client's quota. So use it only behind
/// authentication that rejects wrong values before the layer, behind a gateway that sets the header
/// itself, or with a second policy by address:
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
/// Values are compared byte by byte. If authentication accepts several forms of one credential,
/// each form has its own quota, and denying one does not deny the others. `Authorization` is such a
/// header: `Bearer t`, `bearer t` and, to many services, `Bearer  t` are the same token. Instead,
/// let authentication put the user into the request's extensions and use
/// [`Extension`](crate::Extension).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    field: Field,
    encoded_name: Key,
}

impl Header {
    /// Reads the header of this name, in any case.
    ///
    /// [`Limiter::new`](crate::Limiter::new) rejects invalid header names and two names that differ
    /// over HTTP/2: `host`, which is not a header there (use [`Host`](crate::Host)), and `cookie`,
    /// which may be split into several headers (read the cookie that identifies the user with a
    /// closure).
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
                "over HTTP/2 it may be split into several headers; read the cookie with a closure",
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

/// Reads a request's cost in permits from a header; 1 if the header is absent.
///
/// The value is a whole number from 1 to 999999999999999, in decimal digits. Any other value is
/// answered with 400 and an explanation that names the header.
///
/// Clients must not control this header: a client that can choose the cost chooses 1. Let a gateway
/// set it and remove it from client requests.
///
/// ```
/// use tower_throttle::{HeaderCost, Limit, MINUTE, Policy};
///
/// let policy = Policy::new("tokens", Limit::gcra(10_000, MINUTE))
///     .cost_by(HeaderCost::new("x-cost"));
/// ```
#[derive(Clone, Debug)]
pub struct HeaderCost(Field);

impl HeaderCost {
    /// Reads the header of this name, in any case.
    ///
    /// [`Limiter::new`](crate::Limiter::new) rejects invalid header names.
    pub fn new(name: impl AsRef<str>) -> Self {
        Self(Field::new(name.as_ref()))
    }

    fn refusal(&self, what: &str) -> CostError {
        CostError::new(format!(
            "the header {} {what}; expected one whole number from {ANY_COST}",
            self.0.name()
        ))
    }

    fn read(&self, headers: &HeaderMap) -> Result<u64, CostError> {
        let digits = match self.0.read(headers) {
            FieldValue::Absent => return Ok(1),
            FieldValue::Once(b"") => return Err(self.refusal("is empty")),
            FieldValue::Once(value) => value,
            FieldValue::Repeated => return Err(self.refusal("was sent more than once")),
        };
        // Checked by hand because the standard parser also accepts a plus sign.
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(self.refusal("is not a number in decimal digits"));
        }
        match std::str::from_utf8(digits).map(str::parse) {
            Ok(Ok(0)) => Err(self.refusal("is 0")),
            Ok(Ok(cost @ 1..=MOST_PERMITS)) => Ok(cost),
            _ => Err(self.refusal("is too large")),
        }
    }
}

impl CostExtractor for HeaderCost {
    fn cost(&self, request: &RequestHead<'_>) -> Result<u64, CostError> {
        self.read(request.headers)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()
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
    fn a_cookie_header_is_refused() {
        let refusal = Header::new("Cookie").validate().unwrap_err().to_string();
        assert!(
            refusal.starts_with("header: got \"cookie\": over HTTP/2 it may be split"),
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

    fn cost(values: &[&[u8]]) -> Result<u64, String> {
        let mut request = Request::new(());
        for value in values {
            let value = http::HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append("x-cost", value);
        }
        HeaderCost::new("X-Cost")
            .cost(&RequestHead::new(&request))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_absent_header_costs_1() {
        assert_eq!(cost(&[]), Ok(1));
    }

    #[test]
    fn the_whole_documented_range_is_read() {
        for (value, expected) in [
            ("1", 1),
            ("250", 250),
            (" 7\t", 7),
            ("007", 7),
            ("999999999999999", MOST_PERMITS),
        ] {
            assert_eq!(cost(&[value.as_bytes()]), Ok(expected), "{value:?}");
        }
    }

    #[test]
    fn an_error_names_the_header_the_mistake_and_the_range() {
        assert_eq!(
            cost(&[b"-1"]),
            Err(
                "the header x-cost is not a number in decimal digits; expected one whole number \
                 from 1 to 999999999999999"
                    .to_owned()
            )
        );
        for (values, wrong) in [
            (&[&b""[..]][..], "is empty"),
            (&[b"  "], "is empty"),
            (&[b"1", b"1"], "was sent more than once"),
            (&[b"0"], "is 0"),
            (&[b"000"], "is 0"),
            (&[b"1000000000000000"], "is too large"),
            (&[b"99999999999999999999999999999999"], "is too large"),
            (&[b"+1"], "decimal digits"),
            (&[b"1.0"], "decimal digits"),
            (&[b"1e3"], "decimal digits"),
            (&[b"0x10"], "decimal digits"),
            (&[b"1, 1"], "decimal digits"),
            (&[b"1 2"], "decimal digits"),
            (&[b"\xd9\xa1"], "decimal digits"),
            (&[b"\xff"], "decimal digits"),
        ] {
            let refusal = cost(values).unwrap_err();
            assert!(refusal.contains(wrong), "{values:?}: {refusal}");
        }
    }

    #[test]
    fn a_cost_of_a_name_that_no_header_can_have_is_refused() {
        let refusal = HeaderCost::new("x cost").validate().unwrap_err();
        assert!(refusal.to_string().starts_with("header: got \"x cost\": "));
        assert!(HeaderCost::new("x-cost").validate().is_ok());
    }
}
