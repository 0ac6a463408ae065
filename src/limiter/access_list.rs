//! `AccessList`: clients that are refused, or let through uncounted.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::address::{AddressRanges, embedded, embedded_range, read_range};
use crate::error::ConfigError;
use crate::key::{Key, KeyHasher, Subject};
use crate::request::{AddressExtractor, KeyError, RequestHead};

const OF_NOBODY: &str = "lies within the trusted proxies, so it is never a client's";

/// Clients, by address or by key: those that are refused ([`Rules::deny`](crate::Rules::deny)), or
/// those that are let through uncounted ([`Rules::allow`](crate::Rules::allow)).
///
/// By address, the list applies to every request. By key, it applies only to requests of policies
/// with such keys that are not [off](crate::Mode::Off), since it is the policies that read keys. To
/// refuse a client's key everywhere, have such a policy on every request, at least in
/// [shadow](crate::Mode::Shadow).
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
    /// Each with the extractor of the address to look up. Addresses on both sides are IPv4 if
    /// embedded in IPv6.
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

    /// Adds clients by their addresses, single ones and ranges, as `by` reads them from requests:
    /// the full address, not the prefix in an IPv6 client's key. `0.0.0.0/0` and `::/0` together
    /// are all clients. An IPv4 address embedded in an IPv6 one (`::ffff:0:0/96`, `64:ff9b::/96`)
    /// is the same client as without, whichever is listed: `64:ff9b::/96` lists all IPv4 clients. A
    /// wider range that includes such addresses among others, such as `::/0` or `64:ff9b::/64`,
    /// lists only the others.
    ///
    /// A long list costs little if it is added with one call: an address is found by binary search,
    /// once for each call.
    ///
    /// # Errors
    ///
    /// Names the range that cannot be read, that does not begin with its first address
    /// (`203.0.113.9/24`), or that lies within the proxies that `by` trusts, so that it is never a
    /// client's; or what is wrong with `by`.
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

    /// Adds clients, each by a range from [`of_clients`].
    pub(crate) fn clients(mut self, by: impl AddressExtractor, ranges: AddressRanges) -> Self {
        // An empty list must not require an address from requests.
        if !ranges.are_none() {
            self.addresses.push((Arc::new(by), ranges));
        }
        self
    }

    /// Adds keys: those that the policies' extractors make of requests, such as
    /// [`Key::header("x-user", b"mallory")`](Key::header) for `Header::new("x-user")`, and
    /// [`Key::user(7)`](Key::user) for an [`Extension`](crate::Extension). The text or the number
    /// alone is another key, which is on no such request. Every policy's key is looked up.
    ///
    /// Add addresses with [`addresses`](Self::addresses). As a key, an address would be compared
    /// with the keys of policies by address, in which an IPv6 client has its whole network; and a
    /// request whose address cannot be read has another key, and passes.
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

    /// Looks up the address of a request. The error says what the server does not provide.
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

    /// How many ranges of addresses and keys are listed.
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

/// A range in the form in which addresses are looked up, unless it lies within the proxies that
/// `by` trusts. Errors name `field`, and show `text`, from which it was read.
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
    /// It is not listed, or the request has no address.
    NotListed,
    /// The address cannot be read: it may be any.
    Unreadable,
}

/// Shows no client.
impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessList").finish_non_exhaustive()
    }
}
