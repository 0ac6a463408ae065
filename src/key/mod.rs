//! `Key`: whom a limit counts, in an injective encoding. Stores see only its 128-bit hash, and so
//! do logs unless a policy shows its keys. No header contains a key.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use smallvec::SmallVec;

use crate::error::ConfigError;

mod hasher;
mod words;

pub(crate) use self::hasher::KeyHasher;

/// What a limit is counted by: a user, an address, a tenant or anything else.
///
/// Built from text, bytes, numbers, addresses, or several keys together. The encoding is injective:
/// different subjects are always different keys, even if an address and a text look the same.
/// `Debug` shows nothing of the subject.
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
/// A number is the same key as its decimal digits. So it does not matter whether an application, a
/// file or an operator writes an id as a number or as text. Text with a sign or a leading zero is
/// not a number.
///
/// ```
/// # use tower_throttle::Key;
/// assert_eq!(Key::user(7_u64), Key::user("7"));
/// assert_ne!(Key::user(7_u64), Key::user("007"));
/// ```
///
/// # Users
///
/// `Key::from(7_u64)` may be an order or a telephone number. [`Key::user`] makes a user of it,
/// which is a different key. An [`Extension`](crate::Extension) reads users.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Encoded);

/// Holds a long API key or two short parts without an allocation.
type Encoded = SmallVec<[u8; 128]>;

/// The kind of a subject, so that different kinds never collide. The numbers are part of stored
/// keys, so they never change.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Domain {
    Everybody = 0,
    Text = 1,
    Bytes = 2,
    /// A negative number. Other numbers are encoded as text.
    Negative = 3,
    Address = 4,
    Header = 5,
    User = 6,
    Unattributed = 7,
    Missing = 8,
    All = 9,
}

impl Key {
    /// The key that all requests share.
    pub fn everybody() -> Self {
        Self::encode(Domain::Everybody, &[])
    }

    /// An address, used unchanged. [`ClientAddr`](crate::ClientAddr) and
    /// [`PeerAddr`](crate::PeerAddr) use the canonical form, which
    /// [`Limiter::canonical_address`](crate::Limiter::canonical_address) returns.
    pub fn address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::encode(Domain::Address, &v4.octets()),
            IpAddr::V6(v6) => Self::encode(Domain::Address, &v6.octets()),
        }
    }

    /// Requests from a trusted proxy that did not name the client. Differs from the
    /// [`address`](Self::address) of that proxy.
    pub fn unattributed(last_hop: IpAddr) -> Self {
        Self::encode(Domain::Unattributed, &Self::address(last_hop).0)
    }

    /// The value of a request header. `name` is case-insensitive.
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

    /// An authenticated user. A key that is already a user stays as it is.
    pub fn user(id: impl Into<Self>) -> Self {
        let id = id.into();
        if id.is_of(&[Domain::User]) {
            return id;
        }
        Self::encode(Domain::User, &id.0)
    }

    /// A user, if the key is a text, a number or bytes. Other keys stay as they are.
    pub(crate) fn or_user(self) -> Self {
        let of_no_kind = [Domain::Text, Domain::Bytes, Domain::Negative];
        match self.is_of(&of_no_kind) {
            true => Self::user(self),
            false => self,
        }
    }

    /// The key that requests without a key share; see
    /// [`OnMissingKey::Shared`](crate::OnMissingKey::Shared).
    pub fn missing() -> Self {
        Self::encode(Domain::Missing, &[])
    }

    /// Several keys together: one key for each combination.
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

    /// The first 128 bits of the encoding's BLAKE3 hash, keyed if there is a secret.
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
        /// The same key as the number's digits, whatever the integer type.
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
        /// The same key as the same number of another type. No text is the key of a negative
        /// number.
        impl From<$number> for Key {
            fn from(number: $number) -> Self {
                if number >= 0 {
                    return number.unsigned_abs().into();
                }
                // A cast, since `i128` does not implement `From<isize>`. It holds every value.
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

/// The 128-bit hash of a key, by which stores know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subject(u128);

impl Subject {
    pub(crate) const ZERO: Self = Self(0);

    /// As a number, uniformly distributed.
    pub fn to_u128(self) -> u128 {
        self.0
    }

    /// The digits that `Display` shows. Written by hand because they are part of every stored key
    /// and `format!` is several times slower.
    pub(crate) fn digits(self) -> [u8; 32] {
        let digit = |place: usize| b"0123456789abcdef"[(self.0 >> (124 - 4 * place)) as usize & 15];
        std::array::from_fn(digit)
    }

    /// The hash of a fixed text, such as a policy's name.
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

/// The hash of the key in a limiter without a hash secret.
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

/// Parses the 32 digits that `Display` shows, in either case.
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
