//! `Key`: whose quota it is. An injective encoding of the subject, and its 128-bit hash, by which
//! stores know it: no store or header ever contains the subject in clear text, and logs do only if
//! a policy shows it.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use smallvec::SmallVec;

use crate::error::ConfigError;

mod hasher;
mod words;

pub(crate) use self::hasher::KeyHasher;

/// Whose quota it is: the subject of a check.
///
/// Made from text, bytes, numbers, addresses, or several keys together. The encoding is injective:
/// different subjects are different keys, even if they differ only in kind and not in text. `Debug`
/// shows nothing of the subject.
///
/// ```
/// use tower_throttle::Key;
///
/// let both = Key::all([Key::from("alice"), Key::from(7_u64)]);
/// assert_ne!(both, Key::all([Key::from("alic"), Key::from("e7")]));
/// assert_ne!(Key::from("10.0.0.1"), Key::from("10.0.0.1".parse::<std::net::IpAddr>().unwrap()));
/// assert_eq!(format!("{both:?}"), "Key(..)");
/// ```
///
/// # Numbers and texts
///
/// A number is the same key as its decimal digits, so that it does not matter whether an
/// application, a file or an operator writes an id as a number or as text. A text with a sign or a
/// leading zero is no number.
///
/// ```
/// # use tower_throttle::Key;
/// assert_eq!(Key::user(7_u64), Key::user("7"));
/// assert_ne!(Key::user(7_u64), Key::user("007"));
/// ```
///
/// # Users
///
/// A text or a number by itself, as in `Key::from(7_u64)`, is of no kind: it may be an order or a
/// telephone number. [`Key::user`] makes a user of it, which is another key. An
/// [`Extension`](crate::Extension) reads users.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Encoded);

/// Capacity for a long API key or two short parts, without an allocation.
type Encoded = SmallVec<[u8; 128]>;

/// Domains keep subjects of different kinds apart. They are part of the layout of stored keys: a
/// number, once released, never changes its meaning.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Domain {
    Everybody = 0,
    Text = 1,
    Bytes = 2,
    /// Below zero. Other numbers are their digits, as text.
    Negative = 3,
    Address = 4,
    Header = 5,
    User = 6,
    Unattributed = 7,
    Missing = 8,
    All = 9,
}

impl Key {
    /// The subject that all requests share.
    pub fn everybody() -> Self {
        Self::encode(Domain::Everybody, &[])
    }

    /// A client's address, unchanged. [`ClientAddr`](crate::ClientAddr) and
    /// [`PeerAddr`](crate::PeerAddr) use the canonical form, which
    /// [`Limiter::canonical_address`](crate::Limiter::canonical_address) returns.
    pub fn address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::encode(Domain::Address, &v4.octets()),
            IpAddr::V6(v6) => Self::encode(Domain::Address, &v6.octets()),
        }
    }

    /// Requests that a trusted proxy passed on without saying for whom; in a name space apart from
    /// [`address`](Self::address).
    pub fn unattributed(last_hop: IpAddr) -> Self {
        Self::encode(Domain::Unattributed, &Self::address(last_hop).0)
    }

    /// The value of a request header; `name` in any case.
    pub fn header(name: &str, value: &[u8]) -> Self {
        let name = Self::encode(Domain::Text, name.to_ascii_lowercase().as_bytes());
        Self::header_of(&name, value)
    }

    /// Like [`header`](Self::header), with a name that is already in lower case and encoded.
    pub(crate) fn header_of(encoded_name: &Self, value: &[u8]) -> Self {
        let mut key = Self::open(Domain::Header, encoded_name.0.len() + value.len());
        key.0.extend_from_slice(&encoded_name.0);
        key.0.extend_from_slice(value);
        key
    }

    /// An authenticated user. A key that is a user's already stays as it is, so a type that
    /// converts into one may be passed, too.
    pub fn user(id: impl Into<Self>) -> Self {
        let id = id.into();
        if id.is_of(&[Domain::User]) {
            return id;
        }
        Self::encode(Domain::User, &id.0)
    }

    /// The user of this id, if it is a text, a number or bytes, which are of no kind by themselves.
    /// Any other key stays as it is.
    pub(crate) fn or_user(self) -> Self {
        let of_no_kind = [Domain::Text, Domain::Bytes, Domain::Negative];
        match self.is_of(&of_no_kind) {
            true => Self::user(self),
            false => self,
        }
    }

    /// The shared bucket of requests without a key; see
    /// [`OnMissingKey::Shared`](crate::OnMissingKey::Shared).
    pub fn missing() -> Self {
        Self::encode(Domain::Missing, &[])
    }

    /// Several subjects together: one key for each combination.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut joined = Encoded::new();
        for part in parts {
            joined.extend_from_slice(&part.0);
        }
        Self::encode(Domain::All, &joined)
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// The 128-bit BLAKE3 hash of the encoding, keyed when there is a secret.
    pub(crate) fn subject(&self, secret: Option<&Secret>) -> Subject {
        let hash = match secret {
            None => blake3::hash(&self.0),
            Some(secret) => blake3::keyed_hash(&secret.0, &self.0),
        };
        Subject::first_half(&hash)
    }

    /// `domain ‖ length ‖ bytes`: self-delimiting, so that a sequence of keys is injective too.
    fn encode(domain: Domain, bytes: &[u8]) -> Self {
        let mut key = Self::open(domain, bytes.len());
        key.0.extend_from_slice(bytes);
        key
    }

    fn is_of(&self, domains: &[Domain]) -> bool {
        domains.iter().any(|domain| self.0[0] == *domain as u8)
    }

    fn open(domain: Domain, length: usize) -> Self {
        let [a, b, c, d, e, f, g, h] = (length as u64).to_le_bytes();
        let head = [domain as u8, a, b, c, d, e, f, g, h];
        Self(SmallVec::from_slice(&head))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::encode(Domain::Text, text.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Cow<'_, str>> for Key {
    fn from(text: Cow<'_, str>) -> Self {
        (*text).into()
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::encode(Domain::Bytes, bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    fn from(bytes: [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Self {
        Self::address(address)
    }
}

impl From<Ipv4Addr> for Key {
    fn from(address: Ipv4Addr) -> Self {
        Self::address(address.into())
    }
}

impl From<Ipv6Addr> for Key {
    fn from(address: Ipv6Addr) -> Self {
        Self::address(address.into())
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

macro_rules! key_from_number {
    ($($number:ty)*) => {$(
        /// The same key as the number's digits: the same number is the same key, whatever its type.
        impl From<$number> for Key {
            fn from(number: $number) -> Self {
                itoa::Buffer::new().format(number).into()
            }
        }
    )*};
}
key_from_number!(u8 u16 u32 u64 u128 usize);

macro_rules! key_from_signed {
    ($($number:ty)*) => {$(
        /// The same key as the same number of another type. A negative number is no text's key.
        impl From<$number> for Key {
            fn from(number: $number) -> Self {
                if number >= 0 {
                    return number.unsigned_abs().into();
                }
                // By a cast, since `i128` is made from no `isize`. It holds all of them.
                Self::encode(Domain::Negative, &(number as i128).to_le_bytes())
            }
        }
    )*};
}
key_from_signed!(i8 i16 i32 i64 i128 isize);

/// A hash key, derived from the operator's secret.
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// Derives a hash key from secret bytes of any length.
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key("tower-throttle subject hash v1", secret))
    }
}

/// The hash of a key: what stores see of a subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subject(u128);

impl Subject {
    pub(crate) const ZERO: Self = Self(0);

    /// As a number, uniformly distributed.
    pub fn to_u128(self) -> u128 {
        self.0
    }

    /// The digits that `Display` shows. Written by hand, as they are part of every stored key, and
    /// the library takes several times as long.
    pub(crate) fn digits(self) -> [u8; 32] {
        let digit = |place: usize| b"0123456789abcdef"[(self.0 >> (124 - 4 * place)) as usize & 15];
        std::array::from_fn(digit)
    }

    /// The hash of a fixed text, to keep policies apart in a store's memory.
    pub(crate) fn of_text(text: &str) -> Self {
        Self::first_half(&blake3::hash(text.as_bytes()))
    }

    fn first_half(hash: &blake3::Hash) -> Self {
        let (half, _) = hash
            .as_bytes()
            .split_first_chunk()
            .expect("a hash of 32 bytes has a first half");
        Self(u128::from_be_bytes(*half))
    }
}

/// Without a secret, like a limiter that has none.
impl From<&Key> for Subject {
    fn from(key: &Key) -> Self {
        key.subject(None)
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

/// From the 32 digits that `Display` shows, in either case.
impl FromStr for Subject {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let is_hash = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hash.then(|| u128::from_str_radix(text, 16).ok());
        number.flatten().map(Self).ok_or_else(|| {
            ConfigError::out_of_range("subject", format_args!("{text:?}"), "32 hexadecimal digits")
        })
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subject(..)")
    }
}

#[cfg(test)]
mod tests;
