//! `PeerAddr` and `PeerNetwork`: the address at the other end of the socket.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderName};

use super::canonical::Ipv6Prefix;
use crate::address::embedded;
use crate::error::ConfigError;
use crate::key::Key;
use crate::request::{AddressExtractor, KeyError, KeyExtractor, KeyKind, RequestHead, is_equal};

/// The peer of the socket. A server puts it into the extensions of each request.
///
/// The types of axum and tonic are read with the features `axum` and `tonic`:
/// `ConnectInfo<SocketAddr>` and, in tests, `MockConnectInfo<SocketAddr>`; `TcpConnectInfo`, also
/// with tonic's own TLS, and `UdsConnectInfo`. The feature `tonic-tls` adds
/// `TlsConnectInfo<TcpConnectInfo>`, for servers that accept TLS connections with tokio-rustls and
/// pass them to tonic.
///
/// Insert a `Peer` on plain hyper and on servers without these types, such as axum over a Unix
/// socket: add `.layer(axum::Extension(Peer::UnixSocket))` after the
/// [`RateLimitLayer`](crate::RateLimitLayer), so that it is outside. A [`Peer::Address`] takes
/// precedence over all other types. A [`Peer::UnixSocket`] does not, so a router with that layer
/// may also be served over TCP.
///
/// ```
/// use std::net::SocketAddr;
///
/// use http::Request;
/// use tower_throttle::Peer;
///
/// // For each request of a connection from `address`.
/// fn with_peer<B>(mut request: Request<B>, address: SocketAddr) -> Request<B> {
///     request.extensions_mut().insert(Peer::Address(address));
///     request
/// }
/// # with_peer(Request::new(()), ([127, 0, 0, 1], 80).into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// An address, over TCP or QUIC.
    Address(SocketAddr),
    /// A Unix socket: a proxy on this machine, which [`ClientAddr`](super::ClientAddr) trusts.
    UnixSocket,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl Peer {
    /// The peer of this request.
    pub(super) fn of(request: &RequestHead<'_>) -> Result<Self, KeyError> {
        let inserted = request.extensions.get::<Self>().copied();
        if let Some(address @ Self::Address(_)) = inserted {
            return Ok(address);
        }
        #[cfg(feature = "axum")]
        if let Some(peer) = from_axum(request) {
            return Ok(peer);
        }
        #[cfg(feature = "tonic")]
        if let Some(peer) = by_tonic(request) {
            return peer;
        }
        // A layer adds this to every request, also to those that arrive over TCP.
        if let Some(unix_socket) = inserted {
            return Ok(unix_socket);
        }
        // Last, as in axum: a mock never hides a real address.
        #[cfg(feature = "axum")]
        if let Some(peer) = from_axum_mock(request) {
            return Ok(peer);
        }
        Err(KeyError::Misconfigured(Cow::Borrowed(NO_PEER)))
    }

    /// The peer's address; an error if the peer has none.
    fn address_of(request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        match Self::of(request)? {
            Self::Address(address) => Ok(address.ip()),
            Self::UnixSocket => Err(KeyError::Misconfigured(Cow::Borrowed(NO_ADDRESS))),
        }
    }
}

#[cfg(feature = "axum")]
fn from_axum(request: &RequestHead<'_>) -> Option<Peer> {
    use axum::extract::ConnectInfo;
    let ConnectInfo(address) = request.extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(Peer::Address(*address))
}

#[cfg(feature = "axum")]
fn from_axum_mock(request: &RequestHead<'_>) -> Option<Peer> {
    use axum::extract::connect_info::MockConnectInfo;
    let MockConnectInfo(address) = request.extensions.get::<MockConnectInfo<SocketAddr>>()?;
    Some(Peer::Address(*address))
}

/// gRPC truncates the text, so the advice for gRPC servers comes first.
const NO_PEER: &str = "the request does not carry its peer's address. \
    On tonic, enable the feature `tonic` of tower-throttle (`tonic-tls` behind tokio-rustls), or let \
    an outer interceptor insert a `tower_throttle::Peer`; \
    on axum, the feature `axum`, and serve with \
    `into_make_service_with_connect_info::<SocketAddr>()`, or in a test without a socket add a layer \
    of `MockConnectInfo`; \
    on hyper, insert `tower_throttle::Peer::Address`, and on axum over a Unix socket \
    `Peer::UnixSocket`, into the extensions of each request, by a layer outside of this one";

const NO_ADDRESS: &str = "the request came over a Unix socket, whose peer has no address: \
    use `ClientAddr`, which reads the address from the header that the proxy sets";

const PROXY_IS_PEER: &str = "requests with an `X-Forwarded-For` or `Forwarded` header come from a \
    private or loopback address. If it is a proxy, all clients behind it share one quota: use \
    `ClientAddr` instead of `PeerAddr`, in a file `key = \"client-addr\"`, and trust the proxy's \
    address, in a file by `trusted_proxies`";

/// The address of the socket's peer.
///
/// Use it if clients connect directly. Behind a proxy, every request has the proxy's address: use
/// [`ClientAddr`](super::ClientAddr) there. See [`Peer`] for the source of the address.
///
/// If a request comes from a private or loopback address and has an `X-Forwarded-For` or
/// `Forwarded` header, this is most likely a mistake. The log then warns, at most once a minute. To
/// limit internal services that pass on such headers by their own address, use a closure:
/// `|request: &RequestHead<'_>| PeerAddr.extract(request).ok()`.
///
/// IPv6 clients are distinguished by their /64 network ([`ipv6_prefix`](Self::ipv6_prefix)), the
/// smallest that a subscriber gets. Link-local and loopback addresses count in full. An IPv4
/// address embedded in IPv6 (`::ffff:0:0/96`, `64:ff9b::/96`) is the same client as the plain IPv4
/// address.
///
/// If the server does not provide the address, requests are answered with 500 and an explanation.
///
/// ```
/// use tower_throttle::{Limit, MINUTE, PeerAddr, Policy};
///
/// let policy = Policy::new("client", Limit::gcra(100, MINUTE)).by(PeerAddr);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerAddr;

impl PeerAddr {
    /// Sets how many leading bits distinguish IPv6 clients: 32 to 128, by default 64.
    ///
    /// [`Limiter::new`](crate::Limiter::new) rejects other numbers.
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> PeerNetwork {
        PeerNetwork(Ipv6Prefix::new(bits))
    }
}

impl KeyExtractor for PeerAddr {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        PeerNetwork(Ipv6Prefix::default()).extract(request)
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        is_equal(self, other)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Address
    }

    fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
        PeerNetwork(Ipv6Prefix::default()).diagnose(request)
    }

    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        PeerNetwork(Ipv6Prefix::default()).canonical_address(address)
    }
}

/// The full address, whatever the IPv6 prefix.
impl AddressExtractor for PeerAddr {
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        Ok(embedded(Peer::address_of(request)?))
    }
}

/// A [`PeerAddr`] with another prefix for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNetwork(Ipv6Prefix);

impl KeyExtractor for PeerNetwork {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        let address = Peer::address_of(request)?;
        Ok(Key::address(self.0.canonical(address)))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        is_equal(self, other)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Address
    }

    fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
        let peer = Peer::address_of(request).ok()?;
        is_proxied(peer, request).then_some(PROXY_IS_PEER)
    }

    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        Some(self.0.canonical(address))
    }
}

/// The full address, whatever the IPv6 prefix.
impl AddressExtractor for PeerNetwork {
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        PeerAddr.address(request)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()
    }
}

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether the peer may be a proxy and the request names another client. The address is checked
/// first, so that requests of direct clients cost no header lookup.
pub(super) fn is_proxied(peer: IpAddr, request: &RequestHead<'_>) -> bool {
    let headers = request.headers;
    is_internal(peer) && (headers.contains_key(&X_FORWARDED_FOR) || headers.contains_key(FORWARDED))
}

/// Whether an address is private or loopback, so that no Internet client has it.
fn is_internal(address: IpAddr) -> bool {
    match embedded(address) {
        IpAddr::V4(v4) => {
            // RFC 6598; clusters and overlay networks use it too.
            let is_shared = matches!(v4.octets(), [100, 64..=127, ..]);
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_shared
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

/// The peer that tonic puts into each request's extensions.
#[cfg(feature = "tonic")]
fn by_tonic(request: &RequestHead<'_>) -> Option<Result<Peer, KeyError>> {
    // Also present with tonic's own TLS, next to `TlsConnectInfo`.
    if let Some(info) = request.extensions.get() {
        return Some(from_tcp(info));
    }
    #[cfg(feature = "tonic-tls")]
    if let Some(info) = request.extensions.get::<tls::TlsConnectInfo>() {
        return Some(from_tcp(info.get_ref()));
    }
    #[cfg(unix)]
    if let Some(tonic::transport::server::UdsConnectInfo { .. }) = request.extensions.get() {
        return Some(Ok(Peer::UnixSocket));
    }
    None
}

/// The address is missing if the client disconnected before tonic read it, which is not the
/// server's fault.
#[cfg(feature = "tonic")]
fn from_tcp(info: &tonic::transport::server::TcpConnectInfo) -> Result<Peer, KeyError> {
    info.remote_addr.map(Peer::Address).ok_or(KeyError::Missing)
}

#[cfg(feature = "tonic-tls")]
mod tls {
    use tokio::net::TcpStream;
    use tokio_rustls::server::TlsStream;
    use tonic::transport::server::Connected;

    /// `tonic::transport::server::TlsConnectInfo<TcpConnectInfo>`. Tonic exports that name only
    /// together with its own TLS, whose features choose the cryptography or the certificates.
    pub(super) type TlsConnectInfo = <TlsStream<TcpStream> as Connected>::ConnectInfo;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_address_is_one_that_no_client_on_the_internet_has() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("172.17.0.1", true),
            ("192.168.1.1", true),
            ("169.254.1.1", true),
            ("100.64.0.1", true),
            ("::1", true),
            ("::ffff:10.1.2.3", true),
            ("fd00::7", true),
            ("fe80::7", true),
            ("100.128.0.1", false),
            ("172.32.0.1", false),
            ("203.0.113.9", false),
            ("2001:db8::7", false),
            ("::ffff:203.0.113.9", false),
        ] {
            assert_eq!(is_internal(address.parse().unwrap()), expected, "{address}");
        }
    }
}
