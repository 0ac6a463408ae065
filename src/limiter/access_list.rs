//! `AccessList`: clients that are denied, or allowed without being counted.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::address::{AddressRanges, embedded, embedded_range, read_range};
use crate::error::ConfigError;
use crate::key::{Key, KeyHasher, Subject};
use crate::request::{AddressExtractor, KeyError, RequestHead};

const OF_NOBODY: &str = "lies within the trusted proxies, so no client can have it";

/// A list of clients, by address or by key: for [`Rules::deny`](crate::Rules::deny) those that are
/// denied, for [`Rules::allow`](crate::Rules::allow) those that are allowed without being counted.
///
/// Addresses apply to every request. Keys apply only to requests of policies that read such keys
/// and are not [off](crate::Mode::Off). To deny a key everywhere, have such a policy on every
/// request, at least in [shadow mode](crate::Mode::Shadow).
///
/// ```
/// use tower_throttle::{AccessList, ClientAddr, Key};
///
/// let client = ClientAddr::x_forwarded_for(["10.0.0.0/8"])?;
/// let denied = AccessList::new()
///     .addresses(client, ["203.0.113.0/24", "2001:db8:bad::/48"])?
///     .keys([Key::header("x-user", b"mallory")]);
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Default)]
pub struct AccessList {
    /// Address ranges with their extractor. IPv4 addresses embedded in IPv6 are converted on both
    /// sides.
    addresses: Vec<(Arc<dyn AddressExtractor>, AddressRanges)>,
    keys: HashSet<Key>,
    /// Keys of which only the hash is known.
    subjects: HashSet<Subject>,
}

impl AccessList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds clients by single addresses and ranges. `by` reads the client's full address, not the
    /// prefix of an IPv6 client's key. `0.0.0.0/0` and `::/0` together list all clients.
    ///
    /// An IPv4 address embedded in IPv6 (`::ffff:0:0/96`, `64:ff9b::/96`) is the same client as the
    /// plain IPv4 address, whichever is listed: `64:ff9b::/96` lists all IPv4 clients. A wider
    /// range, such as `::/0` or `64:ff9b::/64`, does not include these addresses.
    ///
    /// Add a long list with one call: an address is found by binary search, once for each call.
    ///
    /// # Errors
    ///
    /// The invalid range: it cannot be parsed, has host bits set (`203.0.113.9/24`), or lies within
    /// the trusted proxies of `by`, so that no client can have it. Or the validation error of `by`.
    pub fn addresses(
        self,
        by: impl AddressExtractor,
        ranges: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        by.validate()?;
        let read = |text: &str| {
            let range = read_range("addresses", text)?;
            of_clients("addresses", &by, text, range)
        };
        let ranges = ranges.into_iter().map(|text| read(text.as_ref()));
        let ranges = ranges.collect::<Result<_, _>>()?;
        Ok(self.clients(by, ranges))
    }

    /// Adds clients by ranges from [`of_clients`].
    pub(crate) fn clients(mut self, by: impl AddressExtractor, ranges: AddressRanges) -> Self {
        // An empty list must not require an address from requests.
        if !ranges.are_none() {
            self.addresses.push((Arc::new(by), ranges));
        }
        self
    }

    /// Adds clients by key. Use the keys that the policies' extractors make:
    /// [`Key::header("x-user", b"mallory")`](Key::header) for `Header::new("x-user")`, and
    /// [`Key::user(7)`](Key::user) for an [`Extension`](crate::Extension). The text or number alone
    /// is a different key and matches no such request. The list is checked against the key of every
    /// policy.
    ///
    /// For addresses use [`addresses`](Self::addresses). An address as a key would be compared with
    /// keys, which contain an IPv6 client's network, and a request with a malformed address would
    /// pass.
    #[must_use]
    pub fn keys(mut self, keys: impl IntoIterator<Item = impl Into<Key>>) -> Self {
        self.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Adds a key by the hash that a limiter has for it.
    #[cfg_attr(
        not(feature = "operator"),
        allow(dead_code, reason = "only operators know keys by their hashes")
    )]
    pub(super) fn add_subject(&mut self, subject: Subject) {
        self.subjects.insert(subject);
    }

    /// Looks up the address of a request. The error is the extractor's explanation.
    #[inline]
    pub(crate) fn find_address_of(&self, request: &RequestHead<'_>) -> Result<Found, String> {
        let mut found = Found::NotListed;
        for (by, ranges) in &self.addresses {
            match by.address(request) {
                Ok(address) if ranges.contain(embedded(address)) => return Ok(Found::Listed),
                Ok(_) | Err(KeyError::Missing) => {}
                Err(KeyError::Malformed) => found = Found::Unreadable,
                Err(KeyError::NotProvided(text) | KeyError::Misconfigured(text)) => {
                    return Err(text.into_owned());
                }
            }
        }
        Ok(found)
    }

    /// The number of address ranges and keys.
    pub(crate) fn len(&self) -> usize {
        let ranges = self.addresses.iter().map(|(_, ranges)| ranges.len());
        ranges.sum::<usize>() + self.keys.len() + self.subjects.len()
    }

    #[inline]
    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty() || !self.subjects.is_empty()
    }

    pub(crate) fn has_key(&self, key: &Key, hasher: &KeyHasher) -> bool {
        // Most lists have no keys, and hashing a key takes time.
        (!self.keys.is_empty() && self.keys.contains(key))
            || (!self.subjects.is_empty() && self.subjects.contains(&hasher.of(key)))
    }
}

/// A range in the form in which addresses are looked up. An error if it lies within the trusted
/// proxies of `by`. Errors name `field` and show `text`, from which the range was parsed.
pub(crate) fn of_clients(
    field: &'static str,
    by: &impl AddressExtractor,
    text: &str,
    range: RangeInclusive<IpAddr>,
) -> Result<RangeInclusive<IpAddr>, ConfigError> {
    if by.are_proxies(&range) {
        return Err(ConfigError::malformed(field, text, OF_NOBODY));
    }
    Ok(embedded_range(range))
}

/// The result of looking up the address of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The address is listed.
    Listed,
    /// The address is not listed, or the request has none.
    NotListed,
    /// The address cannot be parsed, so it may be a listed one.
    Unreadable,
}

/// Does not show the clients.
impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessList").finish_non_exhaustive()
    }
}
