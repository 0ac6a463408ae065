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

const ALL_ARE_PROXIES: &str = "if all addresses are trusted, clients choose their own address; \
                               list the proxies' addresses, or count the proxies with \
                               trusted_hops";

const PROXY_IS_UNTRUSTED: &str = "requests with an `X-Forwarded-For` or `Forwarded` header come from a \
    private or loopback address that is not a trusted proxy, so the header is ignored. If that \
    address is a proxy, all clients behind it share one quota: trust it, in a file by \
    `trusted_proxies`";

/// The headers that hold lists, and the constructors that read them.
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

/// The client's address behind proxies, read from the one header that your proxies write. Only the
/// parts that trusted proxies wrote are used.
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
/// Use the header that the proxy nearest to this server writes; a client can send any other header.
/// Each proxy must *append* its peer's address to the header (nginx: `$proxy_add_x_forwarded_for`)
/// or replace the header. If a proxy passes the header on unchanged, clients can choose their
/// address. A header with a single address ([`header`](Self::header)) must be replaced by the proxy
/// on every request.
///
/// # How it is read
///
/// 1. If the socket peer is outside of the trusted ranges, it is the client, and the header is
///    ignored. A Unix socket counts as trusted. See [`Peer`] for the source of the peer's address.
/// 2. Otherwise the header is read from the right, across all its lines. Addresses in the trusted
///    ranges are proxies; the first other address is the client. Entries to the left of it may be
///    forged and are not read.
/// 3. The client is unknown if the header is absent or contains only trusted addresses, if the
///    client is not among its last 64 entries (including empty ones), or if an entry to the right
///    of the client is not an address. Such requests are *unattributed*: they share one key for
///    each last trusted proxy, different from the key of that address. (Behind a Unix socket, the
///    last proxy counts as `0.0.0.0`.)
///
/// IPv6 clients are distinguished by their /64 network ([`ipv6_prefix`](Self::ipv6_prefix)), the
/// smallest that a subscriber gets. Link-local and loopback addresses count in full. An IPv4
/// address embedded in IPv6 (`::ffff:0:0/96`, `64:ff9b::/96`) is the same client as the plain IPv4
/// address.
///
/// If the server does not provide the peer's address, requests are answered with 500 and an
/// explanation.
///
/// If a request comes from a private or loopback address outside of the trusted ranges and has an
/// `X-Forwarded-For` or `Forwarded` header, most likely a proxy is not trusted yet. The log then
/// warns, at most once a minute.
///
/// [`Limiter::new`](crate::Limiter::new) rejects ranges that trust every IPv4 or every IPv6
/// address, unless [`trusted_hops`](Self::trusted_hops) is set: clients could choose their address.
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
    /// or single addresses). `10.1.2.3/8` is invalid, because it may mean the range or the address.
    ///
    /// # Errors
    ///
    /// The invalid range: it cannot be parsed or has host bits set.
    pub fn x_forwarded_for(
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        Self::new("x-forwarded-for", Syntax::List, trusted)
    }

    /// Reads `Forwarded` (RFC 7239), written by proxies in these ranges.
    ///
    /// A header line with an unclosed quote is malformed: the proxy's part cannot be told from the
    /// client's part, so the request is unattributed. If the deny list contains
    /// [addresses](crate::AccessList::addresses), the request is answered with 400, so that a quote
    /// does not bypass the list.
    ///
    /// # Errors
    ///
    /// The invalid range: it cannot be parsed or has host bits set.
    pub fn forwarded(
        trusted: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        Self::new("forwarded", Syntax::Forwarded, trusted)
    }

    /// Reads a header with a single address (`CF-Connecting-IP`, `Fly-Client-IP`), set by proxies
    /// in these ranges. If it is repeated or has several values, the request is unattributed, and
    /// answered with 400 if the deny list contains addresses. `X-Forwarded-For` and `Forwarded` are
    /// invalid here: use their own constructors.
    ///
    /// # Errors
    ///
    /// The invalid range: it cannot be parsed or has host bits set. Or the header's name, if it is
    /// invalid or holds a list.
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

    /// Takes the `hops`-th address from the right as the client, whatever is to the right of it.
    /// Use it if the number of proxies is known but their addresses are not. 1 to 64; 1 for a
    /// header with a single address.
    ///
    /// The number includes the socket's peer: behind one proxy it is 1. A request with too few
    /// addresses is unattributed. A peer outside of the trusted ranges is still taken as the
    /// client. So trust every address that the nearest proxy may have, or all addresses if only the
    /// proxy can connect:
    ///
    /// ```
    /// use tower_throttle::ClientAddr;
    ///
    /// let behind_two = ClientAddr::x_forwarded_for(["0.0.0.0/0", "::/0"])?.trusted_hops(2);
    /// # Ok::<(), tower_throttle::ConfigError>(())
    /// ```
    ///
    /// [`Limiter::new`](crate::Limiter::new) rejects other numbers.
    #[must_use]
    pub fn trusted_hops(mut self, hops: usize) -> Self {
        self.trusted_hops = Some(hops);
        self
    }

    /// Sets how many leading bits distinguish IPv6 clients: 32 to 128, by default 64.
    ///
    /// [`Limiter::new`](crate::Limiter::new) rejects other numbers.
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

    /// The address family that is trusted as a whole, if there is one.
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
            // Otherwise everything that a client writes to the left of its own address would be
            // read as a proxy's.
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
        let is_mistake =
            is_proxied(peer.ip(), request) && !self.trusted.contain(peer.ip().to_canonical());
        is_mistake.then_some(PROXY_IS_UNTRUSTED)
    }

    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        Some(self.ipv6_prefix.canonical(address))
    }
}

/// The full address, whatever the IPv6 prefix. An unattributed request has no address; it is
/// [`KeyError::Malformed`] if the header is malformed, because it may then come from any client.
impl AddressExtractor for ClientAddr {
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        match self.attribute(request)? {
            Attribution::Client(address) => Ok(embedded(address)),
            Attribution::Unattributed { why, .. } => Err(match why {
                Unknown::Unnamed => KeyError::Missing,
                Unknown::Malformed => KeyError::Malformed,
            }),
        }
    }

    /// With `trusted_hops`, a client may have an address in the trusted ranges.
    fn are_proxies(&self, addresses: &RangeInclusive<IpAddr>) -> bool {
        self.trusted_hops.is_none() && self.trusted.contain_all(addresses)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        KeyExtractor::validate(self)
    }
}
