//! `ClientAddr`: the client's address behind proxies.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use self::attribution::{Attribution, Syntax, Trust, Unknown, attribute};
use self::forwarded::MAX_HOPS;
use super::canonical::Ipv6Prefix;
use super::peer::{Peer, is_proxied};
use crate::address::{AddressRanges, embedded, read_range};
use crate::error::ConfigError;
use crate::http::extract::header::Field;
use crate::key::Key;
use crate::request::{AddressExtractor, KeyError, KeyExtractor, KeyKind, RequestHead, is_equal};

mod attribution;
mod forwarded;

const ALL_ARE_PROXIES: &str = "if every address is a proxy's, clients choose whose quota they use; \
                               list the proxies' addresses, or count the proxies with \
                               trusted_hops";

const PROXY_IS_UNTRUSTED: &str = "requests come from a private or loopback address outside of the \
    trusted proxies and name another in `X-Forwarded-For` or `Forwarded`, which is not believed: if \
    it is a proxy's, all clients behind it share one quota. Trust its address, in a file by \
    `trusted_proxies`";

/// The headers that hold lists, and what reads them.
const LISTS: [(&str, &str); 2] = [
    (
        "x-forwarded-for",
        "holds a list of addresses: use ClientAddr::x_forwarded_for, in a file \"x-forwarded-for\"",
    ),
    (
        "forwarded",
        "holds more than addresses: use ClientAddr::forwarded, in a file \"forwarded\"",
    ),
];

/// The client's address behind proxies, read from the one header that the proxies are known to
/// write. Only what they have written is trusted.
///
/// ```
/// use tower_throttle::{ClientAddr, Limit, MINUTE, Policy};
///
/// let policy = Policy::new("client", Limit::gcra(100, MINUTE))
///     .by(ClientAddr::x_forwarded_for(["10.0.0.0/8", "2001:db8:7::/48"])?);
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// # Which header
///
/// Use the header that the proxy nearest to this server writes; any other may come from the client
/// unchanged. Each proxy must *append* the address of its peer to what it received (nginx:
/// `$proxy_add_x_forwarded_for`) or replace the header. A proxy that passes the header on unchanged
/// lets clients choose who they are. A header with a single address ([`header`](Self::header)) must
/// be replaced by the proxy on every request.
///
/// # How it is read
///
/// 1. A socket peer outside of the trusted ranges is the client; the header is ignored. A Unix
///    socket counts as trusted. See [`Peer`] for where the peer's address comes from.
/// 2. Otherwise the header is read from the right, over all its lines. Addresses in the trusted
///    ranges are proxies; the first other address is the client. Entries to the left of it were
///    written by the client or by unknown proxies, and are never looked at.
/// 3. There is no client if the header is absent, if it has only trusted addresses, if the client is
///    not among its last 64 entries (empty ones included), or if something that is not an address
///    precedes the client. Such requests are *unattributed*: they share a bucket for each last
///    trusted proxy, apart from the buckets of addresses. (The last proxy behind a Unix socket counts
///    as `0.0.0.0`.)
///
/// IPv6 clients are told apart by their /64 network ([`ipv6_prefix`](Self::ipv6_prefix)), the least
/// that a subscriber has; only link-local and loopback addresses count in full. An IPv4 address
/// embedded in an IPv6 one (`::ffff:0:0/96`, `64:ff9b::/96`) is the same client as without.
///
/// A request that does not carry its peer's address is answered with 500 and an explanation.
///
/// If a request comes from a private or loopback address outside of the trusted ranges and has a
/// header `X-Forwarded-For` or `Forwarded`, the log warns, once a minute at most: most likely it
/// comes from a proxy that is not trusted yet.
///
/// To trust every IPv4 or every IPv6 address is refused by [`Limiter::new`](crate::Limiter::new),
/// unless the proxies are counted ([`trusted_hops`](Self::trusted_hops)): clients could choose whose
/// quota they use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddr {
    field: Field,
    syntax: Syntax,
    trusted: AddressRanges,
    trusted_hops: Option<usize>,
    ipv6_prefix: Ipv6Prefix,
}

impl ClientAddr {
    /// Reads `X-Forwarded-For`, written by proxies in these ranges (`10.0.0.0/8`, `2001:db8::/32`,
    /// or single addresses). `10.1.2.3/8` is refused, as it may be meant as either.
    ///
    /// # Errors
    ///
    /// Names the range that cannot be read, or that does not begin with its first address.
    pub fn x_forwarded_for(
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        Self::new("x-forwarded-for", Syntax::List, trusted)
    }

    /// Reads `Forwarded` (RFC 7239), written by proxies in these ranges.
    ///
    /// A header line with an unclosed quote is no list of addresses: nobody can tell the proxy's
    /// part from what the client wrote, so the request is unattributed. If
    /// [addresses](crate::AccessList::addresses) are denied, it is answered with 400, so that a
    /// quote is no way around the list.
    ///
    /// # Errors
    ///
    /// Names the range that cannot be read, or that does not begin with its first address.
    pub fn forwarded(
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        Self::new("forwarded", Syntax::Forwarded, trusted)
    }

    /// Reads a header with a single address (`CF-Connecting-IP`, `Fly-Client-IP`), set by proxies
    /// in these ranges. If it is sent more than once, or with several values in one line, the
    /// request is unattributed, and answered with 400 if addresses are denied. So `X-Forwarded-For`
    /// and `Forwarded`, which have readers of their own, are refused here.
    ///
    /// # Errors
    ///
    /// Names the range that cannot be read, or that does not begin with its first address; or the
    /// header's name, if no header can have it or it holds a list.
    pub fn header(
        name: impl AsRef<str>,
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let name = name.as_ref();
        let mut lists = LISTS.iter();
        match lists.find(|(list, _)| name.eq_ignore_ascii_case(list)) {
            Some((_, reason)) => Err(ConfigError::malformed("header", name, *reason)),
            None => Self::new(name, Syntax::Single, trusted),
        }
    }

    fn new(
        name: &str,
        syntax: Syntax,
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let field = Field::new(name);
        field.validate()?;
        Ok(Self {
            field,
            syntax,
            trusted: AddressRanges::read("trusted_proxies", trusted)?,
            trusted_hops: None,
            ipv6_prefix: Ipv6Prefix::default(),
        })
    }

    /// Takes the `hops`-th address from the right for the client, whatever is to the right of it.
    /// It is for proxies whose number is known but whose addresses are not. 1 to 64; 1 for a header
    /// with a single address.
    ///
    /// The number includes the socket's peer: behind a single proxy it is 1. A request with too few
    /// addresses is unattributed. A peer outside of the trusted ranges is still taken for the
    /// client, so trust every address that the nearest proxy may have, or all addresses if only the
    /// proxy can connect:
    ///
    /// ```
    /// use tower_throttle::ClientAddr;
    ///
    /// let behind_two = ClientAddr::x_forwarded_for(["0.0.0.0/0", "::/0"])?.trusted_hops(2);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// Another number is refused by [`Limiter::new`](crate::Limiter::new).
    #[must_use]
    pub fn trusted_hops(mut self, hops: usize) -> Self {
        self.trusted_hops = Some(hops);
        self
    }

    /// Tells IPv6 clients apart by this many bits instead of 64: 32 to 128.
    ///
    /// Another number is refused by [`Limiter::new`](crate::Limiter::new).
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.ipv6_prefix = Ipv6Prefix::new(bits);
        self
    }
}

impl ClientAddr {
    fn attribute(&self, request: &RequestHead<'_>) -> Result<Attribution, KeyError> {
        let trust = Trust {
            ranges: &self.trusted,
            hops: self.trusted_hops,
        };
        let peer = Peer::of(request)?;
        let lines = self.field.lines(request.headers);
        Ok(attribute(peer, trust, self.syntax, lines))
    }

    /// The family of addresses that are all trusted, if one is.
    fn trusts_all_of(&self) -> Option<&'static str> {
        ["0.0.0.0/0", "::/0"].into_iter().find(|family| {
            let all = read_range("trusted_proxies", family);
            all.is_ok_and(|all| self.trusted.contain_all(&all))
        })
    }
}

impl KeyExtractor for ClientAddr {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(match self.attribute(request)? {
            Attribution::Client(address) => Key::address(self.ipv6_prefix.canonical(address)),
            Attribution::Unattributed { last_hop, .. } => {
                Key::unattributed(self.ipv6_prefix.canonical(last_hop))
            }
        })
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.ipv6_prefix.validate()?;
        match (self.trusted_hops, self.syntax) {
            // Whatever a client writes to the left of its own address is then read as a proxy's.
            (None, _) => self.trusts_all_of().map_or(Ok(()), |all| {
                Err(ConfigError::malformed(
                    "trusted_proxies",
                    all,
                    ALL_ARE_PROXIES,
                ))
            }),
            (Some(1), _) => Ok(()),
            (Some(hops), Syntax::Single) => Err(ConfigError::out_of_range(
                "trusted_hops",
                hops,
                "1 for a header that holds one address",
            )),
            (Some(2..=MAX_HOPS), _) => Ok(()),
            (Some(hops), _) => Err(ConfigError::out_of_range("trusted_hops", hops, "1 to 64")),
        }
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        is_equal(self, other)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Address
    }

    fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
        let Ok(Peer::Address(peer)) = Peer::of(request) else {
            return None;
        };
        let is_trusted = || self.trusted.contain(peer.ip().to_canonical());
        let is_mistake = is_proxied(peer.ip(), request) && !is_trusted();
        is_mistake.then_some(PROXY_IS_UNTRUSTED)
    }

    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        Some(self.ipv6_prefix.canonical(address))
    }
}

/// The full address, whatever prefix tells clients apart. An unattributed request has none; it is
/// [`KeyError::Malformed`] if the header breaks its syntax, so that it may come from anybody.
impl AddressExtractor for ClientAddr {
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        match self.attribute(request)? {
            Attribution::Client(address) => Ok(embedded(address)),
            Attribution::Unattributed { why, .. } => Err(match why {
                Unknown::Unsaid => KeyError::Missing,
                Unknown::Malformed => KeyError::Malformed,
            }),
        }
    }

    /// If proxies are counted instead, a client may have an address like theirs.
    fn are_proxies(&self, addresses: &RangeInclusive<IpAddr>) -> bool {
        self.trusted_hops.is_none() && self.trusted.contain_all(addresses)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        KeyExtractor::validate(self)
    }
}
