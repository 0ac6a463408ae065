//! `PeerAddr`: the address at the other end of the socket.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use crate::error::ConfigError;
use crate::key::Key;
use crate::request::{AddressExtractor, KeyError, KeyExtractor, RequestHead};

use super::canonical::{Ipv6Prefix, embedded};

/// Who is at the other end of the socket; a server puts it into the extensions of each request.
///
/// Axum and tonic bring their own types for this, which are read with the features `axum` and
/// `tonic`: `ConnectInfo<SocketAddr>` and, in tests, `MockConnectInfo<SocketAddr>`;
/// `TcpConnectInfo` and `UdsConnectInfo`. A `Peer` goes before them. It is for servers on plain
/// hyper, and where those types do not come: on axum over a Unix socket
/// (`.layer(axum::Extension(Peer::UnixSocket))`), and behind tonic's own TLS, whose
/// `TlsConnectInfo` this crate cannot see without choosing a TLS library for you:
///
/// ```
/// use http::Request;
/// use tower_throttle::Peer;
/// # use std::net::{IpAddr, SocketAddr};
/// # struct TlsConnectInfo; // As tonic's, which needs one of its TLS features.
/// # impl TlsConnectInfo { fn remote_addr(&self) -> Option<SocketAddr> { None } }
///
/// // As a layer: `Server::builder().layer(MapRequestLayer::new(with_peer))`, outside of the limit.
/// fn with_peer<B>(mut request: Request<B>) -> Request<B> {
///     let info = request.extensions().get::<TlsConnectInfo>();
///     if let Some(address) = info.and_then(|info| info.remote_addr()) {
///         request.extensions_mut().insert(Peer::Address(address));
///     }
///     request
/// }
/// # with_peer(Request::new(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// An address, by TCP or QUIC.
    Address(SocketAddr),
    /// A process on this machine: a proxy, which [`ClientAddr`](super::ClientAddr) trusts.
    UnixSocket,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl Peer {
    /// Who is at the other end of the socket of this request.
    pub(super) fn of(request: &RequestHead<'_>) -> Result<Self, KeyError> {
        if let Some(peer) = request.extensions.get::<Self>() {
            return Ok(*peer);
        }
        #[cfg(feature = "axum")]
        if let Some(peer) = from_axum(request) {
            return Ok(peer);
        }
        #[cfg(feature = "tonic")]
        if let Some(peer) = from_tonic(request) {
            return peer;
        }
        // Last, as in axum: what tests mock never hides what a socket says.
        #[cfg(feature = "axum")]
        if let Some(peer) = from_axum_mock(request) {
            return Ok(peer);
        }
        Err(KeyError::Misconfigured(Cow::Borrowed(NO_PEER)))
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

#[cfg(feature = "tonic")]
fn from_tonic(request: &RequestHead<'_>) -> Option<Result<Peer, KeyError>> {
    use tonic::transport::server::TcpConnectInfo;
    if let Some(info) = request.extensions.get::<TcpConnectInfo>() {
        // The address is gone when the client was before tonic asked: no fault of the server.
        return Some(info.remote_addr.map(Peer::Address).ok_or(KeyError::Missing));
    }
    #[cfg(unix)]
    if let Some(tonic::transport::server::UdsConnectInfo { .. }) = request.extensions.get() {
        return Some(Ok(Peer::UnixSocket));
    }
    None
}

const NO_PEER: &str = "the request does not carry its peer's address. \
    On axum, enable the feature `axum` of tower-throttle and serve the router with \
    `into_make_service_with_connect_info::<SocketAddr>()`; \
    on tonic, enable the feature `tonic`, and behind tonic's own TLS insert \
    `tower_throttle::Peer::Address` into the request's extensions; \
    on hyper, insert `tower_throttle::Peer::Address` into the extensions of each request";

const NO_ADDRESS: &str = "the request came over a Unix socket, whose peer has no address: \
    use `ClientAddr`, which reads it from the header that the proxy sets";

/// The address at the other end of the socket.
///
/// Right where clients connect directly. Behind a proxy every request has the proxy's address: use
/// [`ClientAddr`](super::ClientAddr) there. See [`Peer`] for where the address comes from.
///
/// IPv6 clients are told apart by their /64 network ([`ipv6_prefix`](Self::ipv6_prefix)), which is
/// what one subscriber has at least; only link-local and loopback addresses count whole. An IPv4
/// address inside of an IPv6 one (`::ffff:0:0/96`, `64:ff9b::/96`) is the same client as without.
///
/// A request that does not carry the address is answered with 500 and an explanation.
///
/// ```
/// use tower_throttle::{Limit, MINUTE, PeerAddr, Policy};
///
/// let policy = Policy::new("client", Limit::gcra(100, MINUTE)).by(PeerAddr);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerAddr;

impl PeerAddr {
    /// Tells IPv6 clients apart by this many bits instead of 64; 32 to 128.
    ///
    /// Another number is refused by [`Limiter::new`](crate::Limiter::new).
    #[must_use]
    pub fn ipv6_prefix(self, bits: u8) -> PeerNetwork {
        PeerNetwork(Ipv6Prefix::new(bits))
    }
}

impl KeyExtractor for PeerAddr {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        PeerNetwork(Ipv6Prefix::default()).extract(request)
    }
}

/// The whole address, whatever the prefix by which clients are told apart.
impl AddressExtractor for PeerAddr {
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        match Peer::of(request)? {
            Peer::Address(address) => Ok(embedded(address.ip())),
            Peer::UnixSocket => Err(KeyError::Misconfigured(Cow::Borrowed(NO_ADDRESS))),
        }
    }
}

/// A [`PeerAddr`] with another prefix for IPv6.
#[derive(Clone, Copy, Debug)]
pub struct PeerNetwork(Ipv6Prefix);

impl KeyExtractor for PeerNetwork {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        match Peer::of(request)? {
            Peer::Address(address) => Ok(Key::address(self.0.canonical(address.ip()))),
            Peer::UnixSocket => Err(KeyError::Misconfigured(Cow::Borrowed(NO_ADDRESS))),
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.0.validate()
    }
}
